"""Clients whose broker lies: what each call may do is succeed, or raise an error of this package in time."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pyarrow as pa

from spark_kafka_sink import Producer
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.client.topics import ask_to_create, configs_of, topics_metadata
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.exactly_once.commit_log import CommitLog, last_records_of
from spark_kafka_sink.exactly_once.commit_record import State
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.protocol.apis.topics import CreatableTopic
from spark_kafka_sink.records.columns import RecordColumns
from tests.exactly_once.examples import record
from tests.fuzz.hostile_proxy import HOST, HostileProxy, no_way_but_to

TOPIC: Final = "fuzzed"
LOG: Final = "fuzzed-commits"
MARGIN_S: Final = 60.0
"""What a call may take beyond its deadline on the slowest machine. Nothing else ends a call that waits for longer than it may."""

MOST_TEXT: Final = 20_000

_SETTINGS: Final = {
    "delivery.timeout.ms": 800,
    "request.timeout.ms": 300,
    "max.block.ms": 500,
    "linger.ms": 0,
    "retry.backoff.ms": 2,
    "retry.backoff.max.ms": 20,
    "reconnect.backoff.ms": 1,
    "reconnect.backoff.max.ms": 10,
    "socket.connection.setup.timeout.ms": 500,
    "socket.connection.setup.timeout.max.ms": 500,
}
_DEADLINE_S: Final = 0.6


class Rig:
    """A broker, the proxy before it, and what became of the calls: `outcomes` counts them by the class of the error."""

    def __init__(self, proxy: HostileProxy, rng: random.Random) -> None:
        self.proxy = proxy
        self.outcomes = Counter[str]()
        self._rng = rng
        self._texts: list[str] = []

    def call(self, within_s: float, work: Callable[[], object]) -> bool:
        """Returns whether it succeeded. It must end in time, and with no other error than those of this package."""
        begun = time.monotonic()
        try:
            work()
            outcome = "succeeded"
        except KafkaSinkError as error:
            outcome = type(error).__name__
            self._texts.append(error.message)
        took = time.monotonic() - begun
        while self._texts:
            text = self._texts.pop()
            # Whatever a broker says must not move the cursor of a terminal, nor fill a log.
            assert text.replace("\n", "").isprintable(), f"{text!r:.500}"
            assert len(text) < MOST_TEXT, f"{len(text)} characters: {text:.500}"
        assert took < within_s + MARGIN_S, f"a call took {took:.1f} s, which had {within_s} s: {outcome}"
        self.outcomes[outcome] += 1
        return outcome == "succeeded"

    def settings(self, **more: object) -> dict[str, object]:
        return {"bootstrap.servers": f"{HOST}:{self.proxy.port}", **_SETTINGS, **more}


@contextmanager
def rig(seed: int) -> Iterator[Rig]:
    """A rig whose answers are changed from now on."""
    rng = random.Random(seed)
    with ExitStack() as stack:
        proxy = stack.enter_context(HostileProxy(rng))
        config = BrokerConfig(num_network_threads=1, topic_defaults={})
        broker = stack.enter_context(EmbeddedBroker(config=config, advertised={1: (HOST, proxy.port)}))
        stack.enter_context(no_way_but_to(proxy.port, broker.server(1).port))
        broker.create_topic(TOPIC, partitions=3)
        proxy.serve(broker)
        made = Rig(proxy, rng)
        with CommitLogRig(made) as log:
            log.ensured()
        proxy.honest = False
        yield made
        proxy.honest = True


class CommitLogRig:
    """A client of the cluster and its commit log."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.client = ClusterClient(producer_config(rig.settings()))
        self.log = CommitLog(self.client, CommitLogSettings(topic=LOG, partitions=1, replication_factor=1))

    def __enter__(self) -> CommitLogRig:
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def ensured(self) -> None:
        self.log.ensure(time.monotonic() + 30)


def produced(rig: Rig, rng: random.Random) -> None:
    """A producer's whole life: single records, columns, a transaction, metadata, the close."""
    transactional = rng.random() < 0.4
    more: dict[str, object] = {"transactional.id": f"id-{rng.randrange(3)}"} if transactional else {}
    more["enable.idempotence"] = transactional or rng.random() < 0.7
    more["compression.type"] = rng.choice(("none", "lz4"))
    producer = Producer(rig.settings(**more))
    try:
        if transactional and not rig.call(0.5, lambda: producer.init_transactions(0.5)):
            return
        for _ in range(rng.randrange(1, 4)):
            if transactional and not rig.call(0.5, producer.begin_transaction):
                return
            _send(rig, producer)
            if transactional:
                end = producer.commit_transaction if rng.random() < 0.7 else producer.abort_transaction
                if not rig.call(1.5, lambda end=end: end(0.8)):  # type: ignore[misc]
                    rig.call(1.5, lambda: producer.abort_transaction(0.8))
        rig.call(0.5, lambda: producer.partitions_for(TOPIC))
        producer.metrics()
    finally:
        rig.call(2, lambda: producer.close(1.0))
        assert producer.closed


def _send(rig: Rig, producer: Producer) -> None:
    results = []
    for number in range(3):
        rig.call(0.5, lambda number=number: results.append(producer.send(TOPIC, value=b"%d" % number)))  # type: ignore[misc]
    rig.call(2, lambda: producer.flush(1.5))
    for result in results:
        rig.call(1, lambda result=result: result.result(0.5))  # type: ignore[misc]

    def columns() -> None:
        with producer.scope() as scope:
            scope.append(TOPIC, RecordColumns(num_records=30, value=pa.array([b"a", b"b", b"c"] * 10, pa.binary())))
            scope.flush()

    rig.call(2, columns)


def asked(rig: Rig, rng: random.Random) -> None:
    """Everything that the commit process and the commands ask of a cluster."""
    ids = TransactionalIds("fuzz", f"query{rng.randrange(3)}")

    def by() -> float:
        return time.monotonic() + _DEADLINE_S

    with CommitLogRig(rig) as made:
        client, transactions = made.client, TransactionClient(made.client)

        def claimed() -> None:
            claim = made.log.claim(ids, by())
            claim.write(record(State.PREPARED), by())
            claim.write(record(State.COMPLETE), by())

        topic = CreatableTopic(name=f"new-{rng.randrange(5)}", num_partitions=1, replication_factor=1)
        works: list[Callable[[], object]] = [
            lambda: client.brokers(by()),
            lambda: client.leader(TOPIC, 1, by()),
            lambda: client.topic(TOPIC, by()),
            lambda: client.coordinators([f"id-{number}" for number in range(3)], by()),
            lambda: configs_of(client, 2, TOPIC, by()),
            lambda: topics_metadata(client, None, by()),
            lambda: ask_to_create(client, topic, by(), validate_only=True),
            lambda: transactions.check_brokers(by()),
            lambda: transactions.list_open("fuzz", by()),
            lambda: transactions.describe(["id-0", "id-1"], by()),
            lambda: transactions.init_producer_id("id-2", 60_000, by()),
            lambda: last_records_of(client, LOG, by()),
            claimed,
            claimed,
        ]
        rng.shuffle(works)
        for work in works:
            rig.call(4 * _DEADLINE_S, work)


class Raw(logging.Handler):
    """Notes what would have been an exception that nobody expected: in the sender's thread, in a broker's, in any other."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info or record.name.startswith("spark_kafka_sink.broker"):
            self.texts.append(self.format(record))


@contextmanager
def nothing_raw() -> Iterator[None]:
    """Fails if a thread ends with an exception, or one is logged."""
    raw, root, hook = Raw(), logging.getLogger("spark_kafka_sink"), threading.excepthook
    root.addHandler(raw)
    threading.excepthook = lambda found: raw.texts.append(f"{found.thread}: {found.exc_type.__name__}: {found.exc_value}")
    try:
        yield
    finally:
        threading.excepthook = hook
        root.removeHandler(raw)
    assert raw.texts == [], f"{len(raw.texts)} errors, the first: {raw.texts[0]}"
