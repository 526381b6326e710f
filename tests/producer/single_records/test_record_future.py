"""What a future tells, when, and to whom; those of real records are in test_record_sender.py."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from itertools import count, takewhile

import pytest

from spark_kafka_sink.errors import BrokerError, KafkaSinkError, RecordError, ResultTimeoutError
from spark_kafka_sink.producer.accumulator.producer_batch import ProduceResult
from spark_kafka_sink.producer.base.lifecycle import in_callback
from spark_kafka_sink.producer.base.producer_record import RecordMetadata
from spark_kafka_sink.producer.single_records.record_future import RecordFuture, RecordThunk
from tests.producer.interrupts import Interrupt
from tests.producer.told import Told, future, waiter
from tests.waiting import HOUR_S


def in_a_batch(each: RecordFuture) -> ProduceResult:
    result = ProduceResult("t", 3)
    result.attach(RecordThunk([each], callbacks=True), 0)
    return result


def test_a_record_that_is_acked_tells_where_it_lies() -> None:
    each = future()
    assert not each.done()
    in_a_batch(each).acked(7, -1)
    assert each.done()
    assert each.exception() is None
    assert each.result() == RecordMetadata("t", 3, 7, 5, -1, 1)
    assert each.result().has_offset


def test_a_record_that_fails_raises_why_as_often_as_one_asks() -> None:
    each, error = future(), BrokerError("refused")
    in_a_batch(each).failed(error)
    for _ in range(2):
        with pytest.raises(BrokerError) as raised:
            each.result()
        assert raised.value is error
    assert each.exception() is error


def test_an_error_that_many_records_share_does_not_grow_with_each_that_is_asked() -> None:
    """A traceback holds frames, and with them all that is in their variables."""
    error = BrokerError("refused")
    depths = []
    for _ in range(50):
        each = future()
        in_a_batch(each).failed(error)
        with pytest.raises(BrokerError):
            each.result()
        depth, trace = 0, error.__traceback__
        while trace is not None:
            depth, trace = depth + 1, trace.tb_next
        depths.append(depth)
    assert len(set(depths)) == 1


def test_a_record_in_no_batch_fails_by_itself_and_tells_its_callback_first() -> None:
    told, seen = Told(), list[bool]()
    error = RecordError("no such partition")

    def callback(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
        seen.append(in_callback())
        told.of("it")(metadata, error)

    each = future(callback)
    each.fail(error)
    assert told.ends == [("it", RecordMetadata("t", -1, -1, -1, -1, 1), error)]
    assert seen == [True]
    assert not in_callback()
    assert each.exception() is error


def test_nobody_finds_a_failed_record_done_before_its_callback_has_run() -> None:
    seen: list[bool] = []
    each = future(lambda metadata, error: seen.append(each.done()))
    each.fail(RecordError("no"))
    assert seen == [False]
    assert each.done()


@pytest.mark.parametrize("raised", [ZeroDivisionError(), SystemExit(1)])
def test_a_callback_that_raises_harms_nobody(raised: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def failing(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
        raise raised

    told, others = Told(), [future(), future()]
    result = ProduceResult("t", 0)
    first, last = future(failing), future(told.of("last"))
    result.attach(RecordThunk([first, *others, last], callbacks=True), 0)
    with caplog.at_level(logging.ERROR):
        result.acked(10, -1)
    assert [each.result(0).offset for each in (first, *others, last)] == [10, 11, 12, 13]
    assert told.records == ["last"]
    assert "on_completion raised an exception" in caplog.text


def test_an_interrupt_in_a_callback_goes_on_to_who_sends_and_the_record_has_failed_all_the_same() -> None:
    def interrupted(metadata: RecordMetadata, error: KafkaSinkError | None) -> None:
        raise KeyboardInterrupt

    each = future(interrupted)
    with pytest.raises(KeyboardInterrupt):
        each.fail(RecordError("no"))
    assert each.done()
    assert not in_callback()


def test_a_result_that_is_late_says_how_far_the_record_has_come() -> None:
    each = future()
    with pytest.raises(
        ResultTimeoutError, match=r"topic t: timed out after \d+\.\d s waiting for the record, not yet in a batch"
    ):
        each.result(0.01)
    in_a_batch(each)
    with pytest.raises(TimeoutError, match="in a batch for partition 3; it may still be delivered"):
        each.exception(0)


@pytest.mark.parametrize("timeout", [10.0, 1e300, float("inf")])
def test_who_waits_is_woken_by_the_outcome(timeout: float) -> None:
    of_topic, found = waiter(), list[RecordMetadata]()
    each = RecordFuture(of_topic, 5, -1, 1, None)
    waiting = threading.Thread(target=lambda: found.append(each.result(timeout)))
    waiting.start()
    in_a_batch(each).acked(9, -1)
    of_topic.told()
    waiting.join(60)
    assert found[0].offset == 9


def test_an_outcome_that_nobody_told_of_is_noticed_long_before_the_timeout() -> None:
    each = future()
    result = in_a_batch(each)
    threading.Timer(0.1, lambda: result.acked(9, -1)).start()
    assert each.result(HOUR_S).offset == 9


def test_rows_that_an_interrupt_left_without_a_batch_are_not_told_of_it_too() -> None:
    def interrupted(step: int) -> bool:
        told, result = Told(), ProduceResult("t", 0)
        futures = [future(told.of(record)) for record in range(3)]
        with Interrupt(step) as interrupt:
            result.attach(RecordThunk(futures, callbacks=True), 0)
        for each in futures:
            if each.pending:
                each.fail(RecordError("interrupted"))
        result.acked(0, -1)
        assert sorted(told.records) == [0, 1, 2]
        return interrupt.struck

    assert sum(1 for _ in takewhile(interrupted, count(1))) > 3


def test_it_can_be_awaited_and_a_cancelled_task_only_stops_waiting() -> None:
    async def main() -> None:
        error = BrokerError("refused")
        acked, failed, late = future(), future(), future()
        first, second, third = in_a_batch(acked), in_a_batch(failed), in_a_batch(late)
        tasks = [asyncio.ensure_future(each) for each in (acked, failed, late)]
        wrapped = asyncio.wrap_future(acked)
        await asyncio.sleep(0)
        tasks[2].cancel()
        await asyncio.to_thread(first.acked, 7, -1)
        await asyncio.to_thread(second.failed, error)
        assert [(await each).offset for each in (tasks[0], wrapped, acked)] == [7, 7, 7]
        with pytest.raises(BrokerError):
            await tasks[1]
        with pytest.raises(asyncio.CancelledError):
            await tasks[2]
        assert not late.done()
        third.acked(9, -1)
        assert (await late).offset == 9

    asyncio.run(main())


def test_its_done_callbacks_come_once_whenever_they_are_added() -> None:
    each, fails, ends = future(), future(), list[object]()
    for one in (each, fails):
        one.add_done_callback(ends.append)  # before it is in a batch
    result = in_a_batch(each)
    each.add_done_callback(lambda ended: ends.append(ended.result().offset))
    result.acked(7, -1)
    fails.fail(RecordError("no"))
    each.add_done_callback(lambda ended: ends.append("late"))
    assert ends == [each, 7, fails, "late"]
    assert not each.cancel()
    assert concurrent.futures.wait([each, fails], 0).not_done == set()
