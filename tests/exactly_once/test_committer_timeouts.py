"""A commit that does not end in time leaves nothing open that nobody can commit, and says what is known of its rows."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.errors import BatchAbortedError, CommitTimeoutError
from spark_kafka_sink.exactly_once import failpoints
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.committer import Committer
from spark_kafka_sink.exactly_once.execution import BestEffort
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.exactly_once.opened import soon
from tests.exactly_once.queries import OPTIONS, PREFIX, HurriedCommitter, Query
from tests.kafka.embedded import EmbeddedKafka
from tests.waiting import HOUR_S

pytestmark = [pytest.mark.embedded, pytest.mark.slow]

Own = tuple[PreparedTransaction, ...]


@pytest.fixture
def query(broker_query: Query) -> Query:
    return broker_query


@dataclass
class At:
    """What happens when a commit comes to a failpoint for the first time from now on."""

    actions: defaultdict[str, list[Callable[[], object]]] = field(default_factory=lambda: defaultdict(list))
    faults: list[Fault] = field(default_factory=list)

    def begins(self, where: str, broker: EmbeddedKafka, api: ApiKey, error: ErrorCode, topic: str | None = None) -> None:
        """A fault, until it is removed."""

        def begin() -> None:
            of = {} if topic is None else {"topic": topic}
            self.faults.append(broker.broker.faults.fail(api, error, times=None, **of))  # type: ignore[arg-type]

        self.actions[where].append(begin)

    def late(self, where: str, committer: HurriedCommitter) -> HurriedCommitter:
        """Its time is over soon after it has come to the failpoint."""
        self.actions[where].append(committer.hurry)
        return committer

    def reach(self, name: str, _: int) -> None:
        for action in self.actions.pop(name, []):
            action()


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> At:
    made = At()
    monkeypatch.setattr(failpoints, "reach", made.reach)
    return made


def hurried(query: Query, timeout_s: float = 1.0, sweep_s: float = 30.0, list_s: float = 1.0) -> Committer:
    return Committer(query.log(), TransactionClient(query.client), PREFIX, timeout_s, OPTIONS, BestEffort(sweep_s, list_s))


def too_late(query: Query, own: Own, committer: Committer | None = None) -> str:
    with pytest.raises(CommitTimeoutError, match=rf"^\[COMMIT_TIMEOUT\] batch 0 of {query.id}: ") as caught:
        (committer or hurried(query)).commit(MicroBatch(query.id, 0), own)
    return caught.value.message


NO_LEADER = ErrorCode.LEADER_NOT_AVAILABLE
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(
    ("api", "error"), [(ApiKey.LIST_OFFSETS, NO_LEADER), (ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS)], ids=["read", "written"]
)
def test_where_the_commit_log_cannot_be_read_or_written_in_time_nothing_stays_open(
    broker: EmbeddedKafka, query: Query, api: ApiKey, error: ErrorCode
) -> None:
    own = query.write("a", "b")
    query.log().ensure(time.monotonic() + 10)
    with broker.broker.faults.fail(api, error, times=None, topic=query.log_topic):
        said = too_late(query, own)
    assert "2 rows could not be committed within 1 s" in said
    assert "None of this run's rows is visible, and its transactions are aborted." in said
    assert said.endswith("start the query again, which writes the batch again, unless another driver has committed it")
    assert query.open_ids() == []
    query.run(0, "a", "b")
    query.expect("a", "b")


def test_where_another_driver_takes_the_log_before_each_record_nothing_stays_open(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take_it(name: str, _: int) -> None:
        if name == "prepared.before":
            query.log().claim(TransactionalIds(PREFIX, query.id), soon())

    own = query.write("a", "b")
    monkeypatch.setattr(failpoints, "reach", take_it)
    said = too_late(query, own)
    assert "None of this run's rows is visible, and its transactions are aborted." in said
    assert query.open_ids() == []


def test_what_cannot_be_aborted_in_time_either_is_said_to_be_open(broker: EmbeddedKafka, query: Query) -> None:
    own = query.write("a")
    query.log().ensure(time.monotonic() + 10)
    faults = broker.broker.faults
    with (
        faults.fail(ApiKey.LIST_OFFSETS, NO_LEADER, times=None, topic=query.log_topic),
        faults.fail(ApiKey.END_TXN, LOADING, times=None),
    ):
        said = too_late(query, own, hurried(query, sweep_s=0.5))
    assert "None of this run's rows is visible" in said
    assert "stay open until kafka.transaction.timeout.ms has passed" in said
    assert f"`spark-kafka-sink transactions abort --query {query.id} {OPTIONS}`" in said
    assert len(query.open_ids()) == 1


def test_where_it_is_not_known_whether_the_batch_is_prepared_nothing_is_aborted(
    broker: EmbeddedKafka, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = query.write("a", "b")
    with broker.broker.faults.fail(ApiKey.END_TXN, LOADING, times=None), monkeypatch.context() as patch:
        said = too_late(query, own, query.hurried_when_prepared(patch))
    assert "It is unknown whether they are prepared, so some of them may be visible." in said
    assert said.endswith("To continue: start the query again: the commit continues where it stopped")
    assert len(query.open_ids()) == 2
    query.commit(0, own)
    query.expect("a", "b")


def test_what_is_prepared_is_not_aborted_and_said_to_be_so(broker: EmbeddedKafka, query: Query, at: At) -> None:
    own, said = query.write("a", "b"), list[str]()
    at.begins("prepared.after", broker, ApiKey.END_TXN, LOADING)
    for where in ("prepared.after", "log.after"):  # the second is another process, which has not prepared anything itself
        said.append(too_late(query, own, at.late(where, query.hurried())))
    for each in said:
        assert "They are prepared, and some of them may be visible." in each
    at.faults[0].remove()
    query.commit(0, own)
    query.expect("a", "b")


def test_where_only_the_last_record_is_missing_all_rows_are_said_to_be_visible(
    broker: EmbeddedKafka, query: Query, at: At
) -> None:
    own = query.write("a", "b")
    at.begins("complete.before", broker, ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, query.log_topic)
    said = too_late(query, own, at.late("complete.before", query.hurried()))
    assert "All rows of the batch are visible, but the commit log does not record it as complete yet." in said
    query.expect("a", "b")
    at.faults[0].remove()
    assert query.commit(0, own).rows in (0, 2)
    query.expect("a", "b")


def test_rows_whose_markers_are_missing_are_not_said_to_be_visible(broker: EmbeddedKafka, query: Query, at: At) -> None:
    own = query.write("a", "b")
    with broker.broker.faults.hold_markers():  # the commit log's as well
        said = too_late(query, own, at.late("complete.before", query.hurried()))
    assert "will be visible when the brokers have written the transaction markers. 2 transactions have been committing" in said
    query.commit(0, own)
    query.expect("a", "b")


def test_rows_that_were_written_again_are_aborted_where_those_of_before_cannot_be_committed_in_time(
    broker: EmbeddedKafka, query: Query, at: At
) -> None:
    own = query.write("a", "b")
    at.begins("prepared.after", broker, ApiKey.END_TXN, LOADING)
    too_late(query, own, at.late("prepared.after", query.hurried()))
    again = query.write("b", "a")
    at.actions["sweep.before"].append(at.faults[0].remove)
    said = too_late(query, again, at.late("log.after", query.hurried()))
    assert "None of this run's rows is visible" in said
    assert {each.handle.transactional_id for each in again}.isdisjoint(query.open_ids())
    query.run(0, "a", "b")
    query.expect("a", "b")


def test_rows_that_the_log_says_are_aborted_are_not_said_to_be_prepared(broker: EmbeddedKafka, query: Query) -> None:
    own = query.write("a")
    record = CommitRecord(query.id, 0, State.ABORTED, "r", 1, own)
    query.log().claim(TransactionalIds(PREFIX, query.id), soon()).write(record, soon())
    with broker.broker.faults.fail(ApiKey.DESCRIBE_TRANSACTIONS, LOADING, times=None):
        assert "None of this run's rows is visible" in too_late(query, own)
    assert query.open_ids() == []


# The list of what is open


@pytest.mark.parametrize("error", [None, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNKNOWN_SERVER_ERROR])
def test_a_broker_that_does_not_list_transactions_holds_no_commit_up(
    broker: EmbeddedKafka, query: Query, caplog: pytest.LogCaptureFixture, error: ErrorCode | None
) -> None:
    query.write("lost")
    own = query.write("a")
    faults = broker.broker.faults
    with (
        faults.hold(ApiKey.LIST_TRANSACTIONS, times=None)
        if error is None
        else faults.fail(ApiKey.LIST_TRANSACTIONS, error, times=None),
        caplog.at_level(logging.WARNING),
    ):
        report = hurried(query, timeout_s=20).commit(MicroBatch(query.id, 0), own)
    assert (report.rows, report.own, report.aborted) == (1, True, 0)
    assert f"batch 0 of {query.id}: brokers did not list open transactions" in caplog.text
    assert f"ListTransactions of broker 1 ({broker.address(1)})" in caplog.text
    assert len(query.open_ids()) == 1
    assert query.run(1, "b").aborted == 1
    query.expect("a", "b")


def test_of_a_failed_job_what_its_tasks_told_of_is_aborted_though_a_broker_does_not_list_the_rest(
    broker: EmbeddedKafka, query: Query
) -> None:
    job = MicroBatch(query.id, 0)
    told, lost = query.write("a"), query.write("lost")
    with broker.broker.faults.hold(ApiKey.LIST_TRANSACTIONS, times=None):
        assert hurried(query, timeout_s=HOUR_S).abort_job(job, told) is False
    assert query.open_ids() == [each.handle.transactional_id for each in lost]
    assert query.id in query.log().last_records(soon()).records  # so that a commit() that still runs stops
    assert query.committer().abort_job(job, told) is True
    assert query.open_ids() == []
    assert query.id not in query.log().last_records(soon()).records


# Time that is left when a batch is prepared


def test_a_batch_is_not_prepared_any_more_when_its_transactions_are_about_to_time_out(
    broker: EmbeddedKafka, query: Query, at: At
) -> None:
    """A quarter of their time, 2 s, is left when they are looked at; half of that has to be left when the record is there."""
    own = query.write("a", "b", timeout_ms=8_000)
    at.begins("prepared.before", broker, ApiKey.PRODUCE, ErrorCode.NOT_ENOUGH_REPLICAS, query.log_topic)
    ended = broker.broker.faults.seen(ApiKey.END_TXN)
    with pytest.raises(BatchAbortedError, match=r"had too little time left: .*kafka\.transaction\.timeout\.ms"):
        hurried(query, timeout_s=30).commit(MicroBatch(query.id, 0), own)
    assert query.open_ids() == []
    assert broker.broker.faults.seen(ApiKey.END_TXN) >= ended + len(own), (
        "their coordinator has ended them when their time was over"
    )
    at.faults[0].remove()
    query.run(0, "a", "b")
    query.expect("a", "b")
