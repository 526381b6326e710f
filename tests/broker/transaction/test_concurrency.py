"""Producers in threads of their own, over sockets, into the same partitions: a transaction is there whole or not at all."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.broker.network.client import Client
from tests.broker.transaction.transactor import Transactor

E = ErrorCode
RECORDS = 4
"""In each transaction: two for each of two partitions."""


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as running:
        running.create_topic("topic", 2)
        yield running


def connected(broker: EmbeddedBroker) -> Client:
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    return Client(int(port), host)


def in_threads(work: Callable[[int], list[str]], threads: int) -> Counter[str]:
    """What all of them say is committed."""
    with ThreadPoolExecutor(threads) as pool:
        return Counter(value for values in pool.map(work, range(threads)) for value in values)


def found(broker: EmbeddedBroker) -> Counter[str]:
    with connected(broker) as client:
        reader = Transactor(client, "reader", "topic")
        return Counter([*reader.committed(0), *reader.committed(1)])


class Own:
    """A producer with an id of its own; version 1 adds partitions itself and goes on with its sequence numbers."""

    def __init__(self, txn: Transactor, version: int) -> None:
        self.txn, self.version = txn, version
        self.who = txn.settled(txn.init).producer
        self.sequence = 0

    def transaction(self, name: str, committed: bool) -> None:
        if self.version == 1:
            assert self.txn.settled_codes(lambda: self.txn.add(self.who, 0, 1)) == [E.NONE, E.NONE]
        for index in range(RECORDS):
            assert self.txn.patiently(partial(self.write, index, name)) is E.NONE
        self.end(committed)

    def write(self, index: int, name: str) -> ErrorCode:
        at = self.sequence + index // 2
        return self.txn.produce(self.who, at, value=name, partition=index % 2, version=10 + self.version)

    def end(self, committed: bool) -> None:
        ended = self.txn.end(self.who, committed, 3 + self.version)
        assert ended.code is E.NONE
        if self.version == 1:
            self.sequence += RECORDS // 2
        else:
            self.who = ended.producer


def test_each_with_an_id_of_its_own(broker: EmbeddedBroker) -> None:
    def work(number: int) -> list[str]:
        names = [f"{number}-{turn}" for turn in range(12)]
        with connected(broker) as client:
            own = Own(Transactor(client, f"id-{number}", "topic"), 1 + number % 2)
            for turn, name in enumerate(names):
                own.transaction(name, committed=turn % 3 != 0)
            own.txn.settle()
        return [name for turn, name in enumerate(names) if turn % 3 != 0] * RECORDS

    assert in_threads(work, 6) == found(broker)


def test_all_with_the_same_id(broker: EmbeddedBroker) -> None:
    """They fence each other all the time. What one was told is committed, is; what it was not told is whole or not there. When
    the others are gone, the next gets through."""

    def attempt(txn: Transactor, name: str, *, patient: bool = False) -> bool:
        started = txn.settled(txn.init) if patient else txn.init()
        if started.code is not E.NONE:
            return False
        codes = [txn.produce(started.producer, index // 2, value=name, partition=index % 2) for index in range(RECORDS)]
        return codes == [E.NONE] * RECORDS and txn.commit(started.producer).code is E.NONE

    def work(number: int) -> list[str]:
        committed, chance = [], random.Random(number)
        with connected(broker) as client:
            txn = Transactor(client, "shared", "topic")
            for turn in range(40):
                name = f"{number}-{turn}-{chance.random()}"
                committed += [name] * RECORDS if attempt(txn, name) else []
        return committed

    told = in_threads(work, 4)
    with connected(broker) as client:
        last = Transactor(client, "shared", "topic")
        assert attempt(last, "last", patient=True)
        last.settle()
    there = found(broker)
    assert told + Counter({"last": RECORDS}) <= there
    assert set(there.values()) == {RECORDS}
