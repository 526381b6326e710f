"""What is to be said of each query and job: its record, its transactions, what became of each, and what to do. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.evidence import TransactionDescription
from spark_kafka_sink.exactly_once.foreign_prefix import foreign_prefix
from spark_kafka_sink.exactly_once.last_records import LoggedRecord
from spark_kafka_sink.exactly_once.proof import Proof, proof_of
from spark_kafka_sink.exactly_once.rules import key
from spark_kafka_sink.exactly_once.share import is_job
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

COMMAND: Final = "spark-kafka-sink transactions"


class Standing(StrEnum):
    """prepared: open, and to be committed. committed, aborted: that is proved. unknown: neither is. closed: open, and to be
    aborted, as was asked for. orphan: open, and in no record."""

    PREPARED = "prepared"
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    CLOSED = "closed"
    ORPHAN = "orphan"


_STANDINGS: Final[Mapping[Proof, Standing]] = {
    Proof.OPEN: Standing.PREPARED,
    Proof.COMMITTED: Standing.COMMITTED,
    Proof.ABORTED: Standing.ABORTED,
    Proof.UNKNOWN: Standing.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class TransactionLine:
    """age_ms: since it began; left_ms: until its coordinator aborts it; None if not open."""

    handle: TransactionHandle
    standing: Standing
    age_ms: int | None
    left_ms: int | None


@dataclass(frozen=True, slots=True)
class QueryLine:
    """record: None where the commit log has none. written_ms: when it was, since the epoch. to_do: "" for nothing."""

    query_id: str
    record: CommitRecord | None
    written_ms: int | None
    transactions: tuple[TransactionLine, ...]
    to_do: str


Described = Mapping[str, TransactionDescription]


def query_of(prefix: str, transactional_id: str) -> str | None:
    """Whose tasks' id it is; None where it is nobody's under this prefix, or the commit log's."""
    query_id = transactional_id.removeprefix(f"{prefix}.").partition(".")[0]
    return query_id if TransactionalIds(prefix, query_id).owns(transactional_id) else None


def written_again(query_id: str) -> str:
    """What to do where nothing of a batch is visible."""
    return "run the job again" if is_job(query_id) else "start the query again, it writes the batch again"


def how_to_resolve(query_id: str, batch: int, *, is_proved: bool) -> str:
    """First what loses nothing. is_proved: all that is not committed was aborted; what is unknown is never written again."""
    means = "--replay (or --accept-loss)" if is_proved and not is_job(query_id) else "--accept-loss"
    return f"resolve --query {query_id} --batch {batch} {means}"


def asked_about(prefix: str, records: Iterable[CommitRecord]) -> list[str]:
    """The transactional ids in records whose transactions may still be open."""
    own = (record for record in records if foreign_prefix(prefix, record) is None)
    return [each.transactional_id for record in own for each in _unfinished(record)]


def overview(
    prefix: str,
    records: Mapping[str, LoggedRecord],
    listed: Mapping[str, tuple[TransactionHandle, ...]],
    described: Described,
    now_ms: int,
) -> list[QueryLine]:
    """All of them, the ones with something to do first; of those with another prefix not more than that.

    records: by query the last one. listed: by query what is open.
    described: all that is open, and all that `asked_about` names.
    """
    lines = [
        _line(prefix, query_id, records.get(query_id), listed.get(query_id, ()), described, now_ms)
        for query_id in sorted({*records, *listed})
    ]
    return sorted(lines, key=lambda line: not line.to_do)


def _line(
    prefix: str,
    query_id: str,
    found: LoggedRecord | None,
    listed: tuple[TransactionHandle, ...],
    described: Described,
    now_ms: int,
) -> QueryLine:
    record, written_ms = (found.record, found.written_ms) if found is not None else (None, None)
    other = foreign_prefix(prefix, record) if record is not None else None
    if record is not None and other is not None:
        return QueryLine(query_id, record, written_ms, (), "" if record.state is State.COMPLETE else f"list --prefix {other}")
    known = _known(record, described) if record is not None else {}
    orphans = [(each, Standing.ORPHAN) for each in listed if key(each) not in {key(one) for one in known}]
    lines = tuple(_transaction(each, standing, described, now_ms) for each, standing in (*known.items(), *orphans))
    return QueryLine(query_id, record, written_ms, lines, _to_do(query_id, record, {line.standing for line in lines}))


def _unfinished(record: CommitRecord) -> tuple[TransactionHandle, ...]:
    return record.to_commit if record.state is State.PREPARED else record.aborted_handles


def _known(record: CommitRecord, described: Described) -> dict[TransactionHandle, Standing]:
    """The transactions of a record that are worth a line: those that are not over, and those that are lost."""
    if record.state is State.REPLAY:
        return dict.fromkeys(record.aborted_handles, Standing.ABORTED)
    proofs = {each: proof_of(each, described.get(each.transactional_id)) for each in _unfinished(record)}
    if record.state is State.PREPARED:
        return {each: _STANDINGS[proof] for each, proof in proofs.items()}
    return {each: Standing.CLOSED for each, proof in proofs.items() if proof is Proof.OPEN}


def _transaction(handle: TransactionHandle, standing: Standing, described: Described, now_ms: int) -> TransactionLine:
    said = described.get(handle.transactional_id)
    if said is None or (said.state, said.producer_id, said.epoch) != ("Ongoing", handle.producer_id, handle.epoch):
        return TransactionLine(handle, standing, None, None)
    age_ms = max(0, now_ms - said.start_time_ms)  # the brokers' clock began it, and ours ends it
    return TransactionLine(handle, standing, age_ms, max(0, said.timeout_ms - age_ms))


_ORPHANS: Final = "if it does not run: abort --query {id}; if it does, its {next}commit ends what is left over"
# By the state of its last record, where nothing more is open.
_TO_DO: Final[Mapping[State, str]] = {
    State.COMPLETE: "",
    State.ABORTED: "{again}",
    State.CLOSED: "{again}",
    State.REPLAY: "start the query again, it writes the lost rows again",
}


def _to_do(query_id: str, record: CommitRecord | None, standings: set[Standing]) -> str:
    if record is not None and record.state is State.PREPARED:
        text = _of_prepared(query_id, record.batch, standings - {Standing.ORPHAN})
    elif Standing.CLOSED in standings:
        text = "abort --query {id}"
    elif Standing.ORPHAN in standings:
        text = _ORPHANS
    else:
        text = _TO_DO[record.state] if record is not None else ""
    return text.format(id=query_id, again=written_again(query_id), next="" if is_job(query_id) else "next ")


def _of_prepared(query_id: str, batch: int, standings: set[Standing]) -> str:
    if standings <= {Standing.PREPARED, Standing.COMMITTED}:
        return "recover --query {id}" if is_job(query_id) else "start the query again, or: recover --query {id}"
    if standings == {Standing.ABORTED}:
        return "{again}"
    to_resolve = how_to_resolve(query_id, batch, is_proved=Standing.UNKNOWN not in standings)
    if Standing.PREPARED in standings:
        return f"recover --query {query_id}, before the open ones time out, and then: {to_resolve}"
    return to_resolve
