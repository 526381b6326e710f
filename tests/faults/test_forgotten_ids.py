"""INVALID_PRODUCER_ID_MAPPING: the coordinator has forgotten a transactional id. As in Java since 4.0, its producer has ended."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import KafkaSinkError, ProducerFencedError, TransactionAbortableError, TransactionError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.kafka.cluster import KafkaCluster
from tests.kafka.fixtures import BrokerKind, embedded_in_make_test
from tests.producer.transactions.transacting import Reached, state_of, under_id, until_ended, until_read
from tests.tiers import whole_but
from tests.waiting import wait_until

E = ErrorCode
FORGETS_AFTER_MS: dict[BrokerKind, int] = {"embedded": 500, "kafka": 3000}  # Kafka's first transaction of a group takes a second
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
            "transactional.id.expiration.ms": str(FORGETS_AFTER_MS[kind]),
            "transaction.remove.expired.transaction.cleanup.interval.ms": str(LOOKS_EVERY_MS),
        }
        return KafkaCluster(1, settings, features={"transaction.version": level}, heap_mb=256)
    config = BrokerConfig(
        transaction_version=level,
        transaction_state_log_num_partitions=2,
        transactional_id_expiration_ms=FORGETS_AFTER_MS[kind],
        transaction_remove_expired_transaction_cleanup_interval_ms=LOOKS_EVERY_MS,
    )
    broker = EmbeddedBroker(config=config)
    broker.start()
    return broker


def until_forgotten(kafka: Reached, transactional_id: str) -> None:
    wait_until(lambda: state_of(kafka, transactional_id) is None, f"{transactional_id} is forgotten")


def commit_next(producer: Producer, topic: str, value: int, *, offset: bool = False) -> None:
    producer.begin()
    producer.send(topic, b"%d" % value)
    if offset:
        producer.send_offsets({(topic, 0): value}, topic)
    producer.commit()


@pytest.mark.fault("transaction", "the coordinator has forgotten the id (INVALID_PRODUCER_ID_MAPPING)")
@embedded_in_make_test("a broker of its own that has to wait until it forgets")
@pytest.mark.parametrize(
    "first",
    whole_but(
        ["a record", "a record elsewhere", "an offset elsewhere"],
        ["a record elsewhere", "an offset elsewhere"],
        "seconds until it is forgotten; elsewhere nobody knows a later epoch",
    ),
)
def test_a_fenced_producer_does_not_come_back_when_its_id_is_forgotten(
    forgetful: EmbeddedBroker | KafkaCluster, first: str
) -> None:
    """It would write what its successor has written, and take the group's offset back.

    Elsewhere no leader or group coordinator knows a later epoch of its producer id.
    """
    topic = f"forgotten-{os.getpid()}-{next(_numbers)}"
    forgetful.create_topic(topic)
    forgetful.create_topic(f"{topic}-2")
    with under_id(forgetful.bootstrap_servers, topic) as fenced:
        commit_next(fenced, topic, 1, offset=True)
        with under_id(forgetful.bootstrap_servers, topic) as successor:
            commit_next(successor, topic, 2, offset=True)
        until_forgotten(forgetful, topic)
        fenced.begin()
        there = f"{topic}-2" if "elsewhere" in first else topic
        with pytest.raises(KafkaSinkError, match=r"INVALID_PRODUCER_(ID_MAPPING.* close this producer|EPOCH)"):
            if "record" in first:
                fenced.send(there, b"2").result(20)
            fenced.send_offsets({(topic, 0): 2}, there)
        for call in fenced.abort, fenced.begin, fenced.init_transactions:
            with pytest.raises(TransactionError, match="INVALID_PRODUCER_") as told:
                call()
            assert type(told.value) in (TransactionError, ProducerFencedError)
    with under_id(forgetful.bootstrap_servers, topic) as producer:
        commit_next(producer, topic, 3)
    until_read(forgetful, topic, [1, 2, 3])
    until_read(forgetful, f"{topic}-2", [])
    until_ended(forgetful, topic)


@pytest.mark.parametrize("broker_kind", ["embedded"])
def test_the_next_epoch_of_a_forgotten_id_is_not_taken(forgetful: EmbeddedBroker) -> None:
    """Kafka answers such a request with another producer id and no error (TransactionCoordinator.isValidProducerId)."""
    topic = f"forgotten-{os.getpid()}-{next(_numbers)}"
    with under_id(forgetful.bootstrap_servers, topic) as producer:
        commit_next(producer, topic, 1)
        producer.begin()
        producer.send_offsets({(topic, 0): 1}, topic)
        producer.send(topic, b"2")
        forgetful.faults.fail(ApiKey.END_TXN, E.UNKNOWN_PRODUCER_ID, times=1)
        with pytest.raises(TransactionAbortableError):
            producer.commit()
        with under_id(forgetful.bootstrap_servers, topic):  # aborts the transaction, which keeps the id from being forgotten
            until_forgotten(forgetful, topic)
        with pytest.raises(TransactionError, match="INVALID_PRODUCER_ID_MAPPING"):
            producer.abort()
        with pytest.raises(TransactionError, match="INVALID_PRODUCER_ID_MAPPING"):
            producer.begin()
    until_read(forgetful, topic, [1])
