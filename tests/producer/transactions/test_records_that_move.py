"""Records that another thread moves on, or sends, just while their transaction ends: they are in that one, or fail."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import RecordTooLargeError, TransactionAbortedError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.single_records.topic_buffer import MAX_ROWS
from spark_kafka_sink.producer.transactions.states import State
from spark_kafka_sink.protocol.api import ApiKey
from tests.faults.producing import commit_next
from tests.producer.inside import accumulator_of, lifecycle_of, manager_of, records_of, wake_sender
from tests.producer.transactions.transacting import DEADLINE_S, under_id, until_read
from tests.waiting import wait_until

ENDING = (State.COMMITTING_TRANSACTION, State.ABORTING_TRANSACTION)
LINGERING: dict[str, Any] = {"linger_ms": 100_000, "delivery_timeout_ms": 200_000}


class Gate:
    """Holds who comes to it until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def pass_through(self) -> None:
        self.reached.set()
        assert self.opened.wait(DEADLINE_S)


def gated_partitioner(gate: Gate) -> type:
    """Who appends is held after the rows were taken, before they are in batches: when the value is b"1"."""

    class Gated:
        def partition(self, topic: str, columns: Any, sizes: Any, cluster: Any) -> Any:
            if b"1" in columns.value.to_pylist():
                gate.pass_through()
            return np.zeros(columns.num_records, np.int32)

    return Gated


def held_at(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, gate: Gate, *, before: bool) -> None:
    """Who calls this comes to the gate before or after it is done, once."""
    calls, left = getattr(owner, name), [gate]

    def held(*given: Any) -> Any:
        mine = left.pop() if left else None
        if mine is not None and before:
            mine.pass_through()
        result = calls(*given)
        if mine is not None and not before:
            mine.pass_through()
        return result

    monkeypatch.setattr(owner, name, held)


def between_looks(monkeypatch: pytest.MonkeyPatch, producer: Producer, happens: Callable[[], None]) -> None:
    """`happens` runs once: in the sender's thread, after the first of its looks for records of a transaction that is to end."""
    left, manager = [happens], manager_of(producer)

    def watched(look: Callable[[], bool]) -> Callable[[], bool]:
        def looked() -> bool:
            seen = look()
            if left and lifecycle_of(producer).is_sender_thread and manager.state in ENDING:
                left.pop()()
            return seen

        return looked

    for owner, name in ((records_of(producer), "has_rows"), (accumulator_of(producer), "has_incomplete")):
        monkeypatch.setattr(owner, name, watched(getattr(owner, name)))


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not-begun"])
@pytest.mark.parametrize("committed", [True, False], ids=["commit", "abort"])
def test_what_comes_into_a_batch_between_two_looks_is_not_overlooked(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch, committed: bool, begun: bool
) -> None:
    gate = Gate()

    def moves() -> None:
        gate.opened.set()
        wait_until(records_of(producer).topic_buffer(topic).is_idle)

    with (
        under_id(broker.bootstrap_servers, topic, partitioner_class=gated_partitioner(gate), **LINGERING) as producer,
        ThreadPoolExecutor() as threads,
    ):
        producer.begin_transaction()
        if begun:
            producer.send(topic, b"0")
            producer.flush(DEADLINE_S)
        sent = producer.send(topic, b"1")
        moving = threads.submit(producer.flush, DEADLINE_S)
        assert gate.reached.wait(DEADLINE_S)
        between_looks(monkeypatch, producer, moves)
        ending = threads.submit(producer.commit_transaction if committed else producer.abort_transaction)
        wait_until(lambda: manager_of(producer).state in ENDING or ending.done())
        wake_sender(producer)
        ending.result(DEADLINE_S)
        assert isinstance(sent.exception(0), type(None) if committed else TransactionAbortedError)
        moving.result(DEADLINE_S)
        commit_next(producer, topic, 2)
    until_read(broker, topic, ([0, 1] if begun else [1]) + [2] if committed else [2])


def test_an_abort_waits_for_the_end_of_an_append_and_not_longer(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows have failed by then, but the thread that appended them has not said that it is done."""
    gate, asleep, looked = Gate(), Gate(), threading.Event()
    with under_id(broker.bootstrap_servers, topic, **LINGERING) as producer, ThreadPoolExecutor() as threads:
        producer.begin_transaction()
        producer.send(topic, b"0")
        producer.flush(DEADLINE_S)
        buffer = records_of(producer).topic_buffer(topic)
        held_at(monkeypatch, producer._client, "poll", asleep, before=True)
        wake_sender(producer)
        assert asleep.reached.wait(DEADLINE_S)  # awake, it might append the rows itself when the last one comes
        held_at(monkeypatch, buffer, "settled", gate, before=True)
        sending = threads.submit(lambda: [producer.send(topic, b"1") for _ in range(MAX_ROWS)])
        assert gate.reached.wait(DEADLINE_S)
        asleep.opened.set()
        polls = producer._client.poll

        def polled(timeout_ms: int, now_ms: int) -> Any:
            if manager_of(producer).state is State.ABORTING_TRANSACTION and not accumulator_of(producer).has_incomplete():
                looked.set()  # it has looked, and found the buffer at work
            return polls(timeout_ms, now_ms)

        monkeypatch.setattr(producer._client, "poll", polled)
        aborting = threads.submit(producer.abort_transaction)
        assert looked.wait(DEADLINE_S)
        gate.opened.set()
        aborting.result(DEADLINE_S)
        assert all(isinstance(sent.exception(0), TransactionAbortedError) for sent in sending.result(DEADLINE_S))
    until_read(broker, topic, [])


def before_the_next_request(monkeypatch: pytest.MonkeyPatch, producer: Producer, gate: Gate) -> None:
    """The sender's thread comes to the gate once, about to ask what the open transaction wants."""
    manager, left = manager_of(producer), [gate]
    asks = manager.next_request

    def gated(*asked: Any, **named: Any) -> Any:
        if left and manager.state is State.IN_TRANSACTION:
            left.pop().pass_through()
        return asks(*asked, **named)

    monkeypatch.setattr(manager, "next_request", gated)


def test_what_is_sent_and_committed_behind_the_back_of_the_senders_thread_is_in_the_transaction(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has looked for records before there was one, and asks what is next when the commit has begun."""
    gate = Gate()
    with under_id(broker.bootstrap_servers, topic, **LINGERING) as producer, ThreadPoolExecutor() as threads:
        producer.partitions_for(topic)
        before_the_next_request(monkeypatch, producer, gate)
        producer.begin_transaction()
        wake_sender(producer)
        assert gate.reached.wait(DEADLINE_S)
        sent = producer.send(topic, b"1")
        committing = threads.submit(producer.commit_transaction)
        wait_until(lambda: manager_of(producer).state is State.COMMITTING_TRANSACTION)
        gate.opened.set()
        committing.result(DEADLINE_S)
        assert sent.exception(0) is None
    until_read(broker, topic, [1])


def test_what_fails_when_the_commit_is_on_its_way_already_makes_nothing_of_it(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its send() was let in while the transaction was open; its failure cannot call back the commit any more."""
    sending = Gate()
    with under_id(broker.bootstrap_servers, topic) as producer, ThreadPoolExecutor() as threads:
        producer.begin_transaction()
        producer.send(topic, b"0").result(DEADLINE_S)
        held_at(monkeypatch, manager_of(producer), "check_may_send", sending, before=False)
        failed = threads.submit(producer.send, topic, b"x" * 2_000_000)
        assert sending.reached.wait(DEADLINE_S)
        with broker.faults.hold(ApiKey.END_TXN) as held:
            committed = threads.submit(producer.commit_transaction)
            held.wait()
            sending.opened.set()
            assert isinstance(failed.result(DEADLINE_S).exception(0), RecordTooLargeError)
        committed.result(DEADLINE_S)
        commit_next(producer, topic, 1)
    until_read(broker, topic, [0, 1])


def test_a_record_that_comes_too_late_for_a_commit_is_told_by_it(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its send() was let in while the transaction was open, and went on when nothing kept that from its end any more."""
    sending, flushing = Gate(), Gate()
    with under_id(broker.bootstrap_servers, topic, **LINGERING) as producer, ThreadPoolExecutor() as threads:
        producer.begin_transaction()
        held_at(monkeypatch, manager_of(producer), "check_may_send", sending, before=False)
        held_at(monkeypatch, records_of(producer), "flush", flushing, before=True)
        sent = threads.submit(producer.send, topic, b"1")
        assert sending.reached.wait(DEADLINE_S)
        committed = threads.submit(producer.commit_transaction, 0.3)
        assert flushing.reached.wait(DEADLINE_S)
        wake_sender(producer)
        wait_until(lambda: manager_of(producer).state is State.READY)
        sending.opened.set()
        sent.result(DEADLINE_S)
        flushing.opened.set()
        committed.result(DEADLINE_S)  # no error: who met one would write again what is committed
        assert "the transaction is committed if its records are; records that another thread sent meanwhile" in caplog.text
        producer.begin_transaction()
        producer.commit_transaction()
    until_read(broker, topic, [1])
