"""The sink with one of its rules broken on purpose, to see that the suite notices. `breaking/sitecustomize.py` installs it in
every Python of a driver, and a file says which rule is broken now."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.commit_log import Claim, CommitLog
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.commit_rules import Write, key
from spark_kafka_sink.exactly_once.execution import Execution
from spark_kafka_sink.exactly_once.micro_batch import Slots, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.producer.scopes.send_scope import TransactionScope
from spark_kafka_sink.spark.driver.stopped_queries import StoppedQueries

VARIABLE = "SPARK_KAFKA_SINK_BROKEN"
"""Holds the name of the file with the name of the rule; the empty name breaks nothing."""

Method = Callable[..., Any]


def the_log_is_not_read(original: Method) -> Method:
    """Every batch looks like a new one."""

    def read(self: Execution) -> None:
        original(self)
        batch = self.view.batch
        before = CommitRecord("", batch - 1, State.COMPLETE, "", 0) if batch else None
        self.view = self.view.begun().with_read(before)

    return read


def leftovers_are_committed(original: Method) -> Method:
    """What a replay has written, and what a killed task has left behind, becomes visible."""

    def end(self: TransactionClient, handles: Any, committed: bool, *others: Any) -> Any:
        return original(self, handles, True, *others)

    return end


def complete_is_written_first(original: Method) -> Method:
    """Before the EndTxns, which it says are done."""

    def commit(self: Execution, handles: Any) -> None:
        assert self.view.last is not None
        self._write(Write(State.COMPLETE, self.view.last.transactions, self.view.last.rows))
        original(self, handles)

    return commit


def prepared_is_written_last(original: Method) -> Method:
    """After the EndTxns, which it should announce."""

    def write(self: Execution, record: Write) -> None:
        if record.state is State.PREPARED:
            self._transactions.end_surely([each.handle for each in record.transactions], True, self._call.deadline)
        original(self, record)

    return write


def attempts_share_ids(original: Method) -> Method:
    """A task initialises the id that its last attempt had, which may be listed as prepared."""

    def take(self: Slots, ids: Any, batch: int) -> str:
        from pyspark import TaskContext

        context = TaskContext.get()
        return str(ids.for_slot("0", context.partitionId() if context else 0))

    return take


def nothing_is_swept(original: Method) -> Method:
    """What killed tasks have left behind stays open."""
    return lambda self, handles: frozenset()


def nothing_is_flushed(original: Method) -> Method:
    """The commit message leaves without what is not sent yet, which nobody misses."""

    def flush(self: TransactionScope, timeout: float | None = None) -> None:
        self._accumulator.discard(self.tally, UsageError("dropped"), lambda: None)

    return flush


def a_run_begins_with_a_sweep(original: Method) -> Method:
    """Which ends what is prepared as well."""
    begun = set[str]()  # by this process, which ends with the run that it commits for if that is killed

    def read(self: Execution) -> None:
        if self._ids.query_id not in begun:
            begun.add(self._ids.query_id)
            own = {key(each) for each in self.view.own_handles}
            found = self._transactions.open_handles(self._ids, self._call.deadline)
            self.abort(tuple(each for each in found if key(each) not in own))
        original(self)

    return read


def the_log_is_not_claimed(original: Method) -> Method:
    """Nobody is fenced, nor is it looked at what was written since it was read."""

    def claim(self: CommitLog, ids: TransactionalIds, deadline: float) -> Claim:
        own = replace(ids, prefix=f"{ids.prefix}.{uuid.uuid4()}")
        made: Claim = original(self, own, deadline)
        made._partition = None
        return made

    return claim


RULES: Mapping[str, tuple[type, str, Callable[[Method], Method]]] = {
    rule.__name__: (owner, name, rule)
    for owner, name, rule in (
        (Execution, "_read", the_log_is_not_read),
        (TransactionClient, "end", leftovers_are_committed),
        (Execution, "_commit", complete_is_written_first),
        (Execution, "_write", prepared_is_written_last),
        (Slots, "take", attempts_share_ids),
        (Execution, "abort", nothing_is_swept),
        (TransactionScope, "flush", nothing_is_flushed),
        (Execution, "_read", a_run_begins_with_a_sweep),
        (CommitLog, "claim", the_log_is_not_claimed),
    )
}


def install() -> None:
    """Each rule is broken while the file says so: Spark's Python processes outlive a query.

    Every second the driver looks for what a stopped query has left, and would sometimes make good what the rule broke.
    """
    StoppedQueries._look = lambda self, deadline: None  # type: ignore[method-assign]
    for rule, (owner, name, break_it) in RULES.items():
        setattr(owner, name, _switched(rule, getattr(owner, name), break_it))


def _switched(rule: str, original: Method, break_it: Callable[[Method], Method]) -> Method:
    broken = break_it(original)

    def method(*arguments: Any, **named: Any) -> Any:
        return (broken if broken_now() == rule else original)(*arguments, **named)

    return method


def broken_now() -> str:
    return Path(os.environ[VARIABLE]).read_text()
