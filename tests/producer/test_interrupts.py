"""An interrupt between any two steps of a call leaves a producer that is usable or has failed.

So every future ends, every call returns, and nothing acknowledged is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count, takewhile

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.producer.single_records import topic_buffer
from spark_kafka_sink.producer.single_records.record_future import RecordFuture
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.recording_broker import RecordingBroker
from tests.producer.interrupts import Interrupt
from tests.producer.told import Told
from tests.tiers import whole_but
from tests.waiting import DEADLINE_S, wait_until

pytestmark = pytest.mark.slow

# Of some 1,500 places where an interrupt may come, each 29th is tried: it takes a while to make a producer after one has failed.
STRIDE = 29
ROWS = RecordColumns(2, value=pa.array([b"-1", b"-1"]))
CALLS: dict[str, Callable[[Producer, SendScope], object]] = {
    "send": lambda producer, scope: producer.send("t", b"-1"),
    "append": lambda producer, scope: scope.append("t", ROWS),
    "flush": lambda producer, scope: producer.flush(),
    "commit": lambda producer, scope: producer.commit_transaction(),
    "close": lambda producer, scope: producer.close(),
}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingBroker]:
    for limit in ("MAX_ROWS", "MIN_ROWS"):
        monkeypatch.setattr(topic_buffer, limit, 4)  # so that one more record makes `send` append them
    with RecordingBroker() as made:
        made.topic()
        yield made


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("stride", whole_but([STRIDE, 3], [STRIDE], "minutes"))
def test_an_interrupt_anywhere_leaves_a_producer_that_is_usable_or_failed(
    broker: RecordingBroker, call: str, stride: int
) -> None:
    acked, told = list[int](), Told()
    sent: list[RecordFuture] = []

    def send(producer: Producer) -> None:
        number = len(sent)
        sent.append(producer.send("t", b"%d" % number, on_completion=told.of(number)))

    def is_struck(step: int) -> bool:
        settings: dict[str, object] = {"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000}
        if call == "commit":
            settings["transactional.id"] = f"interrupted-{step}"
        producer = Producer(settings)
        if call == "commit":
            producer.init_transactions()
            producer.begin_transaction()
        scope = producer.scope()
        first = len(sent)
        for _ in range(3):
            send(producer)
        with Interrupt(step) as interrupt:
            CALLS[call](producer, scope)
        with suppress(KafkaSinkError):  # each of these returns, or says why not
            scope.append("t", ROWS)
            scope.flush()
            send(producer)
            producer.flush()
        if call == "commit":  # one that was broken off before it flushed is to be repeated first
            with suppress(KafkaSinkError):
                producer.commit_transaction()
        if producer.failed is None and call != "close":  # a commit that was broken off goes on in the sender thread
            wait_until(lambda: all(each.done() for each in sent), interrupt.where)
        scope.discard()
        scope.close()
        producer.close()
        for number, each in enumerate(sent[first:], first):
            if each.exception(DEADLINE_S) is None:
                acked.append(number)
        return interrupt.struck

    assert sum(1 for _ in takewhile(is_struck, count(1, stride))) >= (2 if call == "close" else 100 / stride)
    assert sorted(told.records) == list(range(len(sent))), "each callback once"
    records = (record for batch in broker.stored() if not batch.is_control for record in batch.records())
    stored = [int(record.value or b"") for record in records if record.value != b"-1"]
    assert len(stored) == len(set(stored)), "none twice"
    assert set(acked) <= set(stored)
