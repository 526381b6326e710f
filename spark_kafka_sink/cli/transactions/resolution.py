"""How a batch that is prepared ends: committed as far as it can be, and the rest as somebody decided."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from spark_kafka_sink.cli.transactions.connection import Connection
from spark_kafka_sink.exactly_once.commit_record import CommitRecord
from spark_kafka_sink.exactly_once.evidence import Outcome
from spark_kafka_sink.exactly_once.execution import Execution
from spark_kafka_sink.exactly_once.resolving import NOTHING_TO_RESOLVE, Means, Refusal, Refused, resolve
from spark_kafka_sink.exactly_once.rules import View, Write
from spark_kafka_sink.producer.transactions.handle import TransactionHandle


@dataclass(frozen=True, slots=True)
class Resolution:
    """refusal: why nothing was written, None where something was. record: the query's last one now.

    lost: what is not committed, with what is proved of it.
    """

    refusal: Refusal | None
    record: CommitRecord | None
    lost: tuple[tuple[TransactionHandle, str], ...] = ()

    @property
    def lost_rows(self) -> int:
        return sum(each.records for each, _ in self.lost)


def resolution(connection: Connection, query_id: str, batch: int, means: Means) -> Resolution:
    """Claims the log, as any commit does. What had been written when the claim was lost is no refusal at the next attempt."""
    wanted = list[Write]()

    def decide(view: View) -> object:
        step = resolve(view, means)
        if isinstance(step, Write):
            wanted.append(step)
        return step

    def finish(execution: Execution, end: object) -> Resolution:
        assert isinstance(end, Refused)
        is_written = any(end.refusal is NOTHING_TO_RESOLVE[each.state] for each in wanted)
        return _resolution(execution.view, end, None if is_written else end.refusal)

    return connection.carry_out(query_id, View(batch, ()), decide, finish)


def _resolution(view: View, end: Refused, refusal: Refusal | None) -> Resolution:
    last = view.last
    if last is None:
        return Resolution(refusal, None)
    outcomes = view.outcomes or {}
    if end.transactional_ids:
        said = {each: str(outcomes.get(each, Outcome.UNKNOWN)) for each in end.transactional_ids}
        return Resolution(refusal, last, tuple(_with_words(last.handles, said)))
    return Resolution(refusal, last, tuple(_with_words(last.handles, dict.fromkeys(last.aborted, str(Outcome.ABORTED)))))


def _with_words(handles: Iterable[TransactionHandle], words: dict[str, str]) -> Iterable[tuple[TransactionHandle, str]]:
    return ((each, words[each.transactional_id]) for each in handles if each.transactional_id in words)
