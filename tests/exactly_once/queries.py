"""A query's commits without Spark: what its tasks leave open, and what a reader sees."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import pytest

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.committer import CommitReport, Committer
from spark_kafka_sink.exactly_once.execution import CommitCall
from spark_kafka_sink.exactly_once.log_writer import LogWriter
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, Slots, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from tests.exactly_once.opened import opened, soon
from tests.faults.exactly_once.kills import COMMIT_FAILPOINTS
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.waiting import until

A_MOMENT_S = 0.2

PREFIX = "committer-test"
OPTIONS = f"--prefix {PREFIX}"

Cut = Callable[[str], AbstractContextManager[None]]

CUTS = [*COMMIT_FAILPOINTS]
# Before and after each of the records, and halfway between them.
SHOW_MOST = ["prepared.before", "prepared.after", "end.after", "complete.after"]


class CutError(Exception):
    """Where a driver dies."""


class HurriedCommitter(Committer):
    """Its time is over soon after a test says so, however long its commit has taken to come there."""

    call: CommitCall

    def hurry(self) -> None:
        self.call.deadline = soon(A_MOMENT_S)

    def _call(self, batch: MicroBatch, *, is_logged: bool = True) -> CommitCall:
        self.call = super()._call(batch, is_logged=is_logged)
        return self.call


@dataclass
class Query:
    """One query's commits on a topic of one partition."""

    kafka: Kafka
    client: ClusterClient
    topic: str
    log_topic: str
    id: str = field(default_factory=lambda: MicroBatch.of_new_job().query_id.replace("job", "query"))
    driver: str = ""

    def committer(self) -> Committer:
        """As another process has it."""
        return Committer(self.log(), TransactionClient(self.client), PREFIX, 30, OPTIONS)

    def hurried(self) -> HurriedCommitter:
        return HurriedCommitter(self.log(), TransactionClient(self.client), PREFIX, 30, OPTIONS)

    def hurried_when_prepared(self, monkeypatch: pytest.MonkeyPatch) -> HurriedCommitter:
        """Its time is over soon after it has begun to commit its first record in the log."""
        committer, commit = self.hurried(), LogWriter.commit

        def in_time(writer: LogWriter, deadline: float) -> None:
            committer.hurry()
            commit(writer, committer.call.deadline)

        monkeypatch.setattr(LogWriter, "commit", in_time)
        return committer

    def log(self) -> CommitLog:
        return CommitLog(self.client, self.log_settings)

    @property
    def log_settings(self) -> CommitLogSettings:
        return CommitLogSettings(self.log_topic, 2)

    def write(
        self, *values: str, batch: int = 0, timeout_ms: int = 60_000, topic: str | None = None
    ) -> tuple[PreparedTransaction, ...]:
        """A transaction of one row for each value, all left open: what the tasks of an attempt do."""
        slots, ids = Slots(), TransactionalIds(PREFIX, self.id, self.driver)
        return tuple(
            PreparedTransaction(
                opened(self.client, topic or self.topic, value, slots.take(ids, batch), timeout_ms),
                partition,
                hash(value) % 2**32,
            )
            for partition, value in enumerate(values)
        )

    def commit(self, number: int, own: tuple[PreparedTransaction, ...], start: int | None = None) -> CommitReport:
        return self.committer().commit(MicroBatch(self.id, number), own, start)

    def run(self, number: int, *values: str) -> CommitReport:
        return self.commit(number, self.write(*values, batch=number))

    def visible(self, topic: str | None = None) -> list[str]:
        """What a reader sees once nothing is open any more that could hold it back."""
        read = read_topic(self.kafka.bootstrap_servers, topic or self.topic, isolation_level="read_committed")
        return sorted((each.value or b"").decode() for each in read)

    def open_ids(self) -> list[str]:
        ids = TransactionalIds(PREFIX, self.id)
        return [each.transactional_id for each in TransactionClient(self.client).open_handles(ids, soon())]

    def abort(self, own: tuple[PreparedTransaction, ...]) -> None:
        """As the broker does with what is open for too long."""
        ended = TransactionClient(self.client).end([each.handle for each in own], False, soon())
        assert {end.error for end in ended.values()} == {""}

    def expect(self, *values: str) -> None:
        """These are visible, soon: EndTxn answers before the markers are in the partitions."""
        until(self.visible, lambda found: found == sorted(values), f"{sorted(values)} visible")


def unusable(log: CommitLog, deadline: float) -> None:
    raise OptionError("option commit.log.topic: it was made anew", option="commit.log.topic")


def once_at(monkeypatch: pytest.MonkeyPatch, where: str, meanwhile: Callable[[], object]) -> None:
    """Does something when a commit has come to a failpoint for the first time."""
    left = [meanwhile]

    def reach(name: str, batch: int) -> None:
        if name == where and left:
            left.pop()()

    monkeypatch.setattr(failpoints, "reach", reach)
