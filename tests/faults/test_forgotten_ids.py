"""INVALID_PRODUCER_ID_MAPPING: the coordinator has forgotten a transactional id, or a leader says so to an idempotent producer.

Java's TxnRequestHandlers abort such a transaction and ask for a producer id again; its idempotent producer fails the batch and
sends the others under a new epoch (TransactionManager.handleFailedBatch)."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import DeliveryError, TransactionAbortableError
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.faults.producing import failing_scope, numbers, one_by_one
from tests.faults.recording_broker import RecordingBroker, carries
from tests.kafka.cluster import KafkaCluster
from tests.kafka.fixtures import BrokerKind, embedded_in_make_test
from tests.producer.transactions.transacting import Reached, state_of, under_id, until_ended, until_read
from tests.waiting import wait_until

E = ErrorCode
FORGETS_AFTER_MS = 500
LOOKS_EVERY_MS = 200
_numbers = itertools.count()


@pytest.fixture(params=[1, 2], ids=["tv1", "tv2"])
def transaction_version(request: pytest.FixtureRequest) -> int:
    version: int = request.param
    return version


@pytest.fixture(scope="module")
def _forgetful() -> Iterator[dict[tuple[BrokerKind, int], EmbeddedBroker | KafkaCluster]]:
    """Those that a test has asked for: each is started once."""
    made: dict[tuple[BrokerKind, int], EmbeddedBroker | KafkaCluster] = {}
    yield made
    for each in made.values():
        each.stop()


@pytest.fixture
def forgetful(
    broker_kind: BrokerKind,
    transaction_version: int,
    _forgetful: dict[tuple[BrokerKind, int], EmbeddedBroker | KafkaCluster],
) -> EmbeddedBroker | KafkaCluster:
    """A broker that soon forgets transactional ids without a transaction; by default it is after seven days."""
    key = broker_kind, transaction_version
    if key not in _forgetful:
        _forgetful[key] = _started(*key)
    return _forgetful[key]


def _started(kind: BrokerKind, version: int) -> EmbeddedBroker | KafkaCluster:
    level = 0 if version == 1 else 2
    if kind == "kafka":
        settings = {
            "transactional.id.expiration.ms": str(FORGETS_AFTER_MS),
            "transaction.remove.expired.transaction.cleanup.interval.ms": str(LOOKS_EVERY_MS),
        }
        return KafkaCluster(1, settings, features={"transaction.version": level}, heap_mb=256)
    config = BrokerConfig(
        transaction_version=level,
        transaction_state_log_num_partitions=2,
        transactional_id_expiration_ms=FORGETS_AFTER_MS,
        transaction_remove_expired_transaction_cleanup_interval_ms=LOOKS_EVERY_MS,
    )
    broker = EmbeddedBroker(config=config)
    broker.start()
    return broker


def until_forgotten(kafka: Reached, transactional_id: str) -> None:
    wait_until(lambda: state_of(kafka, transactional_id) is None, f"{transactional_id} is forgotten")


@pytest.mark.fault("transaction", "the coordinator has forgotten the id (INVALID_PRODUCER_ID_MAPPING)")
@embedded_in_make_test("a broker of its own that has to wait until it forgets")
def test_a_transaction_of_an_id_that_was_forgotten_is_aborted_and_the_next_has_its_rows_once(
    forgetful: EmbeddedBroker | KafkaCluster,
) -> None:
    topic = f"forgotten-{os.getpid()}-{next(_numbers)}"
    forgetful.create_topic(topic)
    with under_id(forgetful.bootstrap_servers, topic) as producer:
        producer.begin()
        producer.send(topic, b"1")
        producer.commit()
        until_forgotten(forgetful, topic)
        producer.begin()
        with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_ID_MAPPING"):
            producer.send(topic, b"2")
            producer.commit()
        producer.abort()
        for values in (b"2", b"3"), (b"4",):
            producer.begin()
            for value in values:
                producer.send(topic, value)
            producer.commit()
    until_read(forgetful, topic, [1, 2, 3, 4])
    until_ended(forgetful, topic)


@pytest.mark.fault("sequence", "INVALID_PRODUCER_ID_MAPPING after a time-out")
@pytest.mark.parametrize("stored", [True, False])
def test_a_batch_that_timed_out_and_then_meets_it_fails_and_what_comes_late_is_not_stored_too(
    cluster: RecordingBroker, stored: bool
) -> None:
    """The first try was stored, or arrives when the others are there already; the program sends what has failed again."""
    with one_by_one(cluster.bootstrap_servers, request_timeout_ms=500) as producer:
        with failing_scope(producer) as scope:
            scope.append("t", numbers([0]))
            scope.flush(10)
            held = cluster.faults.hold(ApiKey.PRODUCE, applied=stored, times=1)
            scope.append("t", numbers([1]))
            held.wait()
            refused = cluster.faults.fail(ApiKey.PRODUCE, E.INVALID_PRODUCER_ID_MAPPING, times=1, when=carries(1))
            with pytest.raises(DeliveryError, match="INVALID_PRODUCER_ID_MAPPING"):
                scope.flush(10)
            assert refused.hits == 1
            assert scope.report().records == 1
        with producer.scope() as scope:
            scope.append("t", numbers([1, 2, 3]))
            scope.flush(10)
            assert scope.report().records == 3
        held.remove()
        with producer.scope() as scope:
            scope.append("t", numbers([4]))
            scope.flush(10)
    assert cluster.values() == [0, *([1] if stored else []), 1, 2, 3, 4]
