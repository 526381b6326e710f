"""`transactions abort`: aborts the open transactions of a query or job that no longer runs, unless they are prepared."""

from __future__ import annotations

import logging
from typing import Final

import click

from spark_kafka_sink.cli.shared_options import TransactionsOptions
from spark_kafka_sink.cli.transactions.connection import Connection, connected
from spark_kafka_sink.cli.transactions.result import COMMAND, Result, transactions_text, written_again
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.exactly_once import recovery_rules
from spark_kafka_sink.exactly_once.commit_log_topic import HOW_TO_LOOK
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.commit_rules import Done, View
from spark_kafka_sink.exactly_once.execution import Execution
from spark_kafka_sink.exactly_once.micro_batch import is_job
from spark_kafka_sink.exactly_once.proof import Proof, proof_of
from spark_kafka_sink.exactly_once.recovery_rules import Refusal, Refused, batch_to_abort
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

logger = logging.getLogger(__name__)

_WHY_NOT: Final = {
    Refusal.PREPARED: f"nothing was aborted, because the batch is prepared; commit it with {COMMAND} recover --query {{id}}",
    Refusal.TO_BE_REPLAYED: "nothing was aborted, because its lost rows will be written again: start the query or run"
    f" {COMMAND} resolve --query {{id}} --batch {{batch}} --accept-loss",
    Refusal.COMMITTED: "nothing was aborted, because some of its transactions are committed",
    Refusal.COMPLETE: "a running driver has committed it in the meantime",
    Refusal.MOVED_ON: "a running driver has moved the query to another batch",
}


def abort(options: TransactionsOptions, query_id: str, *, yes: bool) -> None:
    """Aborts the open transactions of a query or job.

    Exits with 1 if the batch is prepared, transactions are still open afterwards, there is no commit log, or the user declines.
    """
    with connected(options) as connection:
        result = _aborted(connection, query_id, yes=yes)
    result.show(as_json=options.as_json)
    if not result.done:
        raise click.exceptions.Exit(1)


def _aborted(connection: Connection, query_id: str, *, yes: bool) -> Result:
    logged = connection.record(query_id)
    last = None if logged is None else logged.record
    expected = recovery_rules.abort(View(batch_to_abort(last), (), read=True, last=last))
    if isinstance(expected, Refused):
        assert last is not None
        return _refused(query_id, last.batch, expected)
    committed = 0
    if last is None and is_job(query_id):
        check_not_committed(connection, query_id)
    elif last is None:
        committed = _committed(connection, query_id)
    open_now = connection.transactions.open_handles(connection.ids(query_id), connection.deadline())
    if not open_now:
        return Result(query_id, None, True, f"no transactions are open under the prefix {connection.prefix}")
    if not yes:
        _ask(query_id, last, open_now)
    return _end(connection, query_id, last, _then(query_id, last, committed))


def _committed(connection: Connection, query_id: str) -> int:
    """Returns the number of committed transactions of a query without a record; 0 if brokers do not list them."""
    try:
        found = connection.transactions.list_committed(connection.ids(query_id), connection.deadline())
    except KafkaSinkError as error:
        logger.warning("%s: brokers did not list its committed transactions: %s", query_id, error)
        return 0
    # A running driver may have written the record that committed them since the log was read.
    return len(found) if found and connection.record(query_id) is None else 0


def check_not_committed(connection: Connection, query_id: str) -> None:
    """Raises ClickException if a batch job without a record has committed transactions, which only a record can have led to."""
    committed = connection.transactions.list_committed(connection.ids(query_id), connection.deadline())
    if committed:
        found = counted(len(committed), "of its transactions is", "of its transactions are")
        raise click.ClickException(
            f"{query_id}: {Refusal.NO_RECORD.value}, but {found} committed, so its record was removed, or the commit log was"
            f" deleted. Its rows, or some of them, are visible. Look which before you {written_again(query_id)}: {HOW_TO_LOOK}"
        )


def _ask(query_id: str, last: CommitRecord | None, handles: tuple[TransactionHandle, ...]) -> None:
    known = (
        f"the last batch in the commit log is {last.batch}, {last.state}" if last is not None else "the commit log has no batch"
    )
    click.echo(
        f"{query_id}: {counted(len(handles), 'transaction is', 'transactions are')} open and not prepared; {known}.", err=True
    )
    click.echo(transactions_text([(each, "open") for each in handles]), err=True)
    click.echo("Readers with isolation.level=read_committed cannot read past them in these partitions.", err=True)
    click.echo("If the query or job still runs, it stops at its next commit, and the rows must be written again.", err=True)
    click.confirm("Abort them?", abort=True, err=True)


def _end(connection: Connection, query_id: str, last: CommitRecord | None, then: str) -> Result:
    """then: what to do about the aborted rows."""
    batch = batch_to_abort(last)

    def finish(execution: Execution, end: object) -> Done | Refused:
        assert isinstance(end, Done | Refused)
        if isinstance(end, Done):
            execution.abort(end.leftovers)
        return end

    end = connection.carry_out(query_id, View(batch, ()), recovery_rules.abort, finish)
    if isinstance(end, Refused):
        return _refused(query_id, batch, end)
    # The response to an EndTxn(abort) proves nothing if the transaction timed out just before. What is open now does.
    count = len(end.leftovers)
    described = connection.transactions.describe([each.transactional_id for each in end.leftovers], connection.deadline())
    left = [each for each in end.leftovers if proof_of(each, described.get(each.transactional_id)) is Proof.OPEN]
    if left:
        still = tuple((each, "open") for each in left)
        is_open = f"{len(left)} of {counted(count, 'transaction')} {'is' if len(left) == 1 else 'are'} still open"
        return Result(query_id, None, False, f"{is_open}: run the command again", still)
    aborted = tuple((each, "aborted") for each in end.leftovers)
    return Result(query_id, None, True, f"{counted(count, 'transaction')} aborted{then}", aborted)


def _then(query_id: str, last: CommitRecord | None, committed: int) -> str:
    """Returns what to do about the aborted rows. A complete job misses none.

    committed: how many transactions of a query without a record are committed.
    """
    if committed:
        found = counted(committed, "other transaction of the query is", "other transactions of the query are")
        return (
            f"; {found} committed, but {Refusal.NO_RECORD.value}, so the log was deleted: look which rows are visible before you"
            " set commit.log.start, because the query then writes its batch again"
        )
    if not is_job(query_id):
        return "; when the query starts again, it writes the uncommitted rows again"
    if last is None:  # or it was complete and is already forgotten
        return f"; if the job failed, {written_again(query_id)}"
    return "" if last.state is State.COMPLETE else f"; {written_again(query_id)}"


def _refused(query_id: str, batch: int, end: Refused) -> Result:
    return Result(query_id, batch, False, _WHY_NOT[end.refusal].format(id=query_id, batch=batch))
