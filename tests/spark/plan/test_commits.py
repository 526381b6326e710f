"""What is refused before a commit asks any broker, and what is reported after one."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_kafka_sink.errors import CommitTimeoutError, DeadlineError, KafkaSinkError, UsageError
from spark_kafka_sink.exactly_once.commit_log_topic import HOW_TO_LOOK, CommitLogDeletedError, made_again
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.committer import CommitReport, Committer
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.exactly_once.recovery_rules import Refusal, Refused
from spark_kafka_sink.options.sink_options import SinkOptions, sink_options
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.batch_report import BatchReport
from spark_kafka_sink.spark.feed import Feed
from spark_kafka_sink.spark.messages import DeliveryMessage, total
from spark_kafka_sink.spark.plan import commits, failed_writes
from spark_kafka_sink.spark.plan.commits import commit_job, commit_micro_batch, commit_shares
from tests.exactly_once.opened import client_of
from tests.exactly_once.queries import PREFIX, Query
from tests.kafka.embedded import EmbeddedKafka
from tests.spark.counting import counting
from tests.waiting import HOUR_S, until, wait_until

BATCH = MicroBatch("query", 3)
OF_TASKS = [DeliveryReport(records=5, batches=1), DeliveryReport(records=6, batches=2)]


@pytest.fixture
def options() -> SinkOptions:
    """Of brokers that nobody reaches."""
    return sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "delivery.guarantee": "exactly-once"})


def message(batch: MicroBatch | None) -> DeliveryMessage:
    return DeliveryMessage(0, DeliveryReport(), None if batch is None else TaskTransaction(batch, None))


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        ([BATCH, None], "2 messages, of batch 3 of query"),
        ([BATCH, MicroBatch("query", 4)], "2 messages, of batch 3 of query, batch 4 of query"),
        ([MicroBatch("query", 2)], "1 message, of batch 2 of query"),
        ([BATCH, MicroBatch("other", 3)], "2 messages, of batch 3 of other, batch 3 of query"),
        ([], "0 messages, of no query"),
    ],
)
def test_messages_that_are_not_all_of_this_micro_batch_commit_nothing(
    options: SinkOptions, batches: list[MicroBatch | None], found: str
) -> None:
    with pytest.raises(UsageError, match=f"commit of micro-batch 3: Spark passed {found}; nothing is committed"):
        commit_micro_batch(options, 3, [message(batch) for batch in batches], Feed())


@pytest.mark.parametrize("batches", [[None], [BATCH, MicroBatch("job-2", 0)]])
def test_messages_that_are_not_all_of_this_job_commit_nothing(options: SinkOptions, batches: list[MicroBatch | None]) -> None:
    with pytest.raises(UsageError, match="nothing is committed"):
        commit_job(options, BATCH, [message(batch) for batch in batches], Feed())


@pytest.mark.parametrize(
    ("commit", "expected"),
    [
        (CommitReport(11, True, 2, 1, 30, 80), DeliveryReport(records=11, batches=3)),
        # Prepared by a driver that died: of its rows only the number is known, and those of this attempt are aborted.
        (CommitReport(11, False, 2, 2, 0, 80), DeliveryReport(records=11)),
        # Complete before.
        (CommitReport(0, False, 0, 2, 0, 80), DeliveryReport()),
    ],
)
def test_what_is_reported_is_what_became_visible(
    options: SinkOptions, monkeypatch: pytest.MonkeyPatch, commit: CommitReport, expected: DeliveryReport
) -> None:
    monkeypatch.setattr(Committer, "commit", lambda *_, **__: commit)
    own, reports = commit_shares(options, BATCH, [TaskTransaction(BATCH, None)], list(OF_TASKS), Feed(), 0.0)
    expected.add(
        DeliveryReport(
            commits=1,
            transactions_committed=commit.committed,
            transactions_aborted=commit.aborted,
            prepare_to_visible_ms=commit.visible_ms,
            commit_ms=80,
        )
    )
    assert (own, total(reports)) == (commit.own, expected)


def timers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)}


def test_a_commit_that_waits_for_markers_is_told_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "WARN_AFTER_S", 0)
    metrics, before = counting(), timers()
    with EmbeddedKafka(in_memory=True) as kafka, client_of(kafka) as client, ThreadPoolExecutor(1) as elsewhere:
        kafka.create_topic("events", 1, 1, {})
        settings = {"delivery.guarantee": "exactly-once", "topic": "events", "transactional.id.prefix": PREFIX}
        options = sink_options({"kafka.bootstrap.servers": kafka.bootstrap_servers, **settings})
        query = Query(kafka, client, "events", "")
        batch = MicroBatch(query.id, 0)
        shares = [TaskTransaction(batch, each) for each in query.write("a", "b")]
        with kafka.broker.faults.hold_markers():
            committing = elsewhere.submit(commit_shares, options, batch, shares, [], metrics.feed, 0.0)
            first = until(metrics.committing_s, lambda found: found.get(query.id, 0.0) > 0, "told")
            until(metrics.committing_s, lambda found: found[query.id] > first[query.id], "older")
        assert committing.result(60).own
        metrics.feed.committed(BatchReport(query.id, 0, 0.0, 0.0, DeliveryReport()))
        assert metrics.committing_s() == {query.id: 0.0}
        monkeypatch.setattr(commits, "WARN_AFTER_S", HOUR_S)
        later = MicroBatch(query.id, 1)
        shares = [TaskTransaction(later, each) for each in query.write("c", batch=1)]
        assert commit_shares(options, later, shares, [], metrics.feed, 0.0).own
        assert metrics.committing_s() == {query.id: 0.0}
        wait_until(lambda: timers() <= before, "the end of its timer")
        commits.committers.close()
    metrics.close()


@pytest.mark.parametrize("version", [4, 5])
def test_transactions_of_executors_with_an_older_release_are_not_committed(options: SinkOptions, version: int) -> None:
    handle = TransactionHandle("an-id", 7, 0, version, 1, (("events", "0"),))
    share = TaskTransaction(BATCH, PreparedTransaction(handle, 0, 0))
    received = pickle.loads(pickle.dumps(DeliveryMessage(0, DeliveryReport(), share)))
    with pytest.raises(
        UsageError, match=r"another release of spark-kafka-sink than the driver, so nothing is committed"
    ) as caught:
        commit_micro_batch(options, BATCH.number, [received], Feed())
    assert f"transactions of version {version}" in caught.value.message


JOB = MicroBatch("job-1", 0)
COMMAND = "spark-kafka-sink transactions {} --query job-1 --bootstrap-servers 127.0.0.1:1"


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (True, "none of its rows are visible, and none of its transactions are open"),
        (False, f"may still be open. They will time out; run `{COMMAND.format('abort')}` to end them now"),
        (Refused(Refusal.COMPLETE), "its rows are visible, except for those that its error calls gone. Do not run it again"),
        (Refused(Refusal.PREPARED), f"some of its rows may be visible. Run `{COMMAND.format('recover')}` to end it"),
        (
            Refused(Refusal.COMMITTED),
            "All or some of its rows are visible, and others may be in open transactions until they time out",
        ),
        (made_again("commits"), HOW_TO_LOOK),
        (made_again("commits"), "Its rows, or some of them, may be visible. Look whether they are before you run the job again"),
        (CommitLogDeletedError("gone"), f"before you run the job again: {HOW_TO_LOOK}"),
        (
            DeadlineError("no broker"),
            f"not known whether it is prepared ([DEADLINE] no broker). Run `{COMMAND.format('recover')}` to end it",
        ),
    ],
)
def test_what_became_of_a_job_that_failed_is_said_with_what_to_do(
    options: SinkOptions,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    end: Refused | bool | KafkaSinkError,
    said: str,
) -> None:
    def abort(*_: object) -> Refused | bool:
        if isinstance(end, KafkaSinkError):
            raise end
        return end

    monkeypatch.setattr(Committer, "abort_job", abort)
    monkeypatch.setattr(failed_writes, "KILL_TIMEOUT_S", 0)
    outcome = failed_writes.abort_job(options, JOB)
    assert said in outcome.text
    assert outcome.text in caplog.text
    assert outcome.is_over is (end in (True, Refused(Refusal.COMPLETE)))


def test_of_a_job_that_never_began_to_commit_it_is_said_that_its_rows_are_invisible_though_the_commit_log_is_gone(
    options: SinkOptions, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def abort(*_: object) -> Refused | bool:
        raise made_again("commits")

    monkeypatch.setattr(Committer, "abort_job", abort)
    failed_writes.abort_job(options, JOB, is_commit_begun=False)
    assert "None of its rows are visible, because its commit had not begun" in caplog.text
    assert "may be visible" not in caplog.text


def test_queries_with_the_same_options_do_not_wait_for_each_other_and_jobs_not_for_ever() -> None:
    options = sink_options(
        {"kafka.bootstrap.servers": "127.0.0.1:1", "delivery.guarantee": "exactly-once", "kafka.transaction.timeout.ms": "2000"}
    )
    committers = commits.Committers()
    with committers.of(options, BATCH) as one, committers.of(options, MicroBatch("other", 0)) as other:
        assert one is not other
    with ThreadPoolExecutor(1) as elsewhere, committers.of(options, JOB):
        waiting = elsewhere.submit(lambda: committers.of(options, MicroBatch("job-2", 0)).__enter__())
        with pytest.raises(
            CommitTimeoutError,
            match=r"while other batch jobs in this process committed; none of its rows are visible.* Its transactions stay open",
        ):
            waiting.result(30)
    with ThreadPoolExecutor(1) as elsewhere, committers.of(options, BATCH):
        waiting = elsewhere.submit(lambda: committers.of(options, BATCH).__enter__())
        with pytest.raises(  # the earlier run may be committing the same batch
            CommitTimeoutError, match=r"while an earlier run of the query .* committed; none of this run's rows are visible"
        ):
            waiting.result(30)
    committers.close()


def test_of_many_queries_those_that_were_not_used_for_longest_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    options = sink_options({"kafka.bootstrap.servers": "127.0.0.1:1", "delivery.guarantee": "exactly-once"})
    monkeypatch.setattr(commits, "MOST_COMMITTERS", 2)
    committers, queries = commits.Committers(), [MicroBatch(name, 0) for name in ("first", "second", "third")]

    def of(query: MicroBatch) -> Committer:
        with committers.of(options, query) as found:
            return found

    with committers.of(options, queries[0]) as in_use:
        second = of(queries[1])
        of(queries[2])
    assert of(queries[0]) is in_use
    assert of(queries[1]) is not second
    committers.close()
