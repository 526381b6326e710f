"""A task that goes on writing after somebody else has aborted its transaction, with transactions of version 1.

That is what a sweep does to the attempt that lost, and to the tasks of a driver that was replaced.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import BatchAbortedError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError, LogWriter
from spark_kafka_sink.exactly_once.micro_batch import Slots, TransactionalIds
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from tests.exactly_once.opened import client_of, new_id, record, soon, writer
from tests.exactly_once.queries import PREFIX, Query
from tests.kafka.cluster import KafkaCluster
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def unverifying() -> Iterator[KafkaCluster]:
    """Kafka 3.9 with its verification switched off, which is what Kafka 3.5 and older are like."""
    with KafkaCluster(version="3.9", overrides={"transaction.partition.verification.enable": "false"}, heap_mb=256) as made:
        yield made


def abort(client: ClusterClient, handle: TransactionHandle) -> None:
    (ended,) = TransactionClient(client).end([handle], False, soon()).values()
    assert ended.outcome is Outcome.ABORTED


def late_row(client: ClusterClient, topic: str) -> None:
    """Writes a row, has it aborted by another process, and writes one more, to the same partition."""
    task = writer(client, topic, new_id())
    task.append([record("in time")], soon())
    with client_of(",".join(client.config.bootstrap_servers)) as other:
        abort(other, task.handle())
        until_settled(other, task.handle())
    task.append([record("late")], soon())


def state_of(client: ClusterClient, handle: TransactionHandle) -> str:
    return TransactionClient(client).describe([handle.transactional_id], soon())[handle.transactional_id].state


def until_settled(client: ClusterClient, handle: TransactionHandle) -> None:
    """Until the marker is written: before that the late row would be part of what it aborts."""
    wait_until(lambda: state_of(client, handle) == "CompleteAbort", "the abort")


def write_plain_row(kafka: Kafka, topic: str) -> list[str]:
    """Writes a committed row behind all others; what a consumer that reads committed gets then."""
    with client_of(kafka) as client:
        after = writer(client, topic, new_id())
        after.append([record("behind")], soon())
        after.commit(soon())
        wait_until(lambda: state_of(client, after.handle()) == "CompleteCommit", "the commit")
    found = read_topic(kafka.bootstrap_servers, topic, isolation_level="read_committed")
    return [(each.value or b"").decode() for each in found]


def test_a_late_row_is_refused_by_leaders_that_verify(kafka_tv1: Kafka, new_topic: NewTopic) -> None:
    topic = new_topic(on=kafka_tv1)
    with client_of(kafka_tv1) as client, pytest.raises(ClaimLostError, match=r"INVALID_TXN_STATE|TRANSACTION_ABORTABLE"):
        late_row(client, topic)
    assert write_plain_row(kafka_tv1, topic) == ["behind"]


@pytest.mark.whole("a cluster of its own")
@pytest.mark.kafka
def test_leaders_without_verification_take_it_for_ever_so_exactly_once_is_refused(unverifying: KafkaCluster) -> None:
    topic = unverifying.create_topic(new_id("late"))
    with client_of(unverifying) as client:
        late_row(client, topic)
        assert write_plain_row(unverifying, topic) == []  # for ever
        with pytest.raises(UnsupportedVersionError, match=r"delivery\.guarantee=at-least-once"):
            TransactionClient(client).check_brokers(soon())


def test_a_transaction_that_began_again_in_another_partition_is_not_committed(kafka_tv1: Kafka, new_topic: NewTopic) -> None:
    topic, log = new_topic(2, on=kafka_tv1), new_topic(2, on=kafka_tv1, config={"cleanup.policy": "compact"})
    with client_of(kafka_tv1) as client:
        query = Query(kafka_tv1, client, topic, log)
        identity = Slots().take(TransactionalIds(PREFIX, query.id), 0)
        producer_id, epoch = TransactionClient(client).init_producer_id(identity, 60_000, soon())

        def write(partition: int, value: str) -> TransactionHandle:
            task = LogWriter(client, identity, producer_id, epoch, 1, (topic, partition))
            task.append([record(value)], soon())
            return task.handle()

        with client_of(kafka_tv1) as other:
            abort(other, write(0, "before the abort"))
        write(1, "after it")
        # What the task tells: it has noticed nothing.
        whole = TransactionHandle(identity, producer_id, epoch, 1, 2, ((topic, "0-1"),))
        with pytest.raises(BatchAbortedError):
            query.commit(0, (PreparedTransaction(whole, 0, 0),))
        assert query.open_ids() == []
        query.expect()
