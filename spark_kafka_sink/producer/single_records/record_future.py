"""The future that `Producer.send` returns, and the thunk that completes the futures of one batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Lock
from typing import Any, Final

from spark_kafka_sink.errors import KafkaSinkError, ResultTimeoutError
from spark_kafka_sink.producer.accumulator.producer_batch import ProduceResult
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.producer.base.lifecycle import Lifecycle, callbacks
from spark_kafka_sink.producer.base.producer_record import OnCompletion, RecordMetadata, not_stored
from spark_kafka_sink.records.batch_header import NO_TIMESTAMP
from spark_kafka_sink.reports.partition_reports import NO_OFFSET

logger = logging.getLogger(__name__)

_STATE_OF_BASE: Final = frozenset({"_condition", "_done_callbacks", "_exception", "_result", "_state", "_waiters"})
_making_state = Lock()


class TopicWaiter:
    """Waits for single records of one topic; each producer has one per topic. Any thread may wait.

    A failed batch is reported to the futures of its records only.
    """

    def __init__(self, lifecycle: Lifecycle, topic: str) -> None:
        self._lifecycle = lifecycle
        self.topic = topic
        self.tally = Tally(keeps_error=False)
        self.check_process = lifecycle.check_process
        self.told = self.tally.told
        self.futures_are_watched = False  # some future has the state of its base class

    def wait_until(self, done: Callable[[], bool], timeout_s: float | None, late: Callable[[float], KafkaSinkError]) -> None:
        """Returns once `done()`. Raises `late(seconds)` after `timeout_s`, or the producer's error if it cannot get there."""
        self._lifecycle.check_may_wait()
        self.tally.wait_until(done, timeout_s, late, self._lifecycle.check_alive)


class RecordFuture(Future[RecordMetadata]):
    """The outcome of one record, a concurrent.futures.Future that asyncio can await. Java's Future<RecordMetadata>.

    Any thread may ask.
    """

    # The base class makes a condition and two lists, which takes longer than sending the record does. So its state is made when
    # something first asks for it (`__getattr__`).
    __slots__ = ("_batch", "_callback", "_error", "_index", "_key_size", "_timestamp", "_value_size", "_waiter")

    def __init__(
        self, waiter: TopicWaiter, timestamp: int, key_size: int, value_size: int, callback: OnCompletion | None
    ) -> None:
        self._waiter = waiter
        self._timestamp = timestamp
        self._key_size = key_size
        self._value_size = value_size
        self._callback = callback
        self._batch: ProduceResult | None = None
        self._index = 0
        self._error: KafkaSinkError | None = None

    def __repr__(self) -> str:
        # Read once: the sender thread may complete the record meanwhile.
        result, error = self._batch, self._error
        where = f"topic={self._waiter.topic!r}" + ("" if result is None else f" partition={result.partition}")
        if error is None and result is not None and result.done:
            error = result.error
            if error is None:
                where += f" offset={self._metadata().offset}"
        elif error is None:
            return f"<RecordFuture {where}, {'waiting for a batch' if result is None else 'in a batch'}>"
        return f"<RecordFuture {where}, {'acknowledged' if error is None else f'failed with [{error.code}]'}>"

    def done(self) -> bool:
        """Returns whether the record was acknowledged or failed, and its callback has run.

        Raises:
            UsageError: Called in a forked child, which cannot learn the outcome.
        """
        if self._finished():
            return True
        self._waiter.check_process()
        return False

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Returns the record's location, waiting if it is not known yet.

        Args:
            timeout: maximum wait in seconds; None waits for at most delivery.timeout.ms.

        Raises:
            KafkaSinkError: The record failed; this is its error.
            ResultTimeoutError: Timed out waiting for the outcome.
            UsageError: The outcome is not known yet, and this is a forked child or a delivery callback, where the wait would
                not end.
        """
        error = self.exception(timeout)
        if error is not None:
            raise error.with_traceback(None)  # all records of a batch share it: the traceback would grow with each raise
        return self._metadata()

    def cancel(self) -> bool:
        """Returns False: a record that was sent cannot be taken back. A cancelled task only stops waiting for it."""
        return False

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        import asyncio  # takes 30 ms, and few programs need it

        return asyncio.wrap_future(self).__await__()

    def __getattr__(self, name: str) -> Any:
        """Makes the base class's state when it is missing."""
        if name not in _STATE_OF_BASE:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        with _making_state:
            if "_condition" not in self.__dict__:
                super().__init__()
        self._waiter.futures_are_watched = True  # before the check: a batch looks for it after its end
        self._settle()
        return self.__dict__[name]

    def exception(self, timeout: float | None = None) -> KafkaSinkError | None:
        """Returns the record's error, or None if it was acknowledged. `timeout` and errors are those of `result`."""
        if not self._finished():
            self._waiter.wait_until(self._finished, timeout, self._late)
        return self._error or (None if self._batch is None else self._batch.error)

    def _finished(self) -> bool:
        return self._error is not None or (self._batch is not None and self._batch.done)

    def _late(self, waited_s: float) -> ResultTimeoutError:
        where = "not yet in a batch" if self._batch is None else f"in a batch for partition {self._batch.partition}"
        return ResultTimeoutError(
            f"topic {self._waiter.topic}: timed out after {waited_s:.1f} s waiting for the record, {where}; it may still"
            " be delivered",
            topic=self._waiter.topic,
        )

    def _metadata(self) -> RecordMetadata:
        result = self._batch
        if result is None:
            return not_stored(self._waiter.topic, key_size=self._key_size, value_size=self._value_size)
        if result.error is not None:
            return not_stored(self._waiter.topic, result.partition, self._key_size, self._value_size)
        offset = NO_OFFSET if result.base_offset == NO_OFFSET else result.base_offset + self._index
        timestamp = self._timestamp if result.log_append_time == NO_TIMESTAMP else result.log_append_time
        return RecordMetadata(self._waiter.topic, result.partition, offset, timestamp, self._key_size, self._value_size)

    # For the sending threads

    @property
    def pending(self) -> bool:
        """Whether the record is neither in a batch nor failed."""
        return self._batch is None and self._error is None

    def fail(self, error: KafkaSinkError) -> None:
        """Fails a record that gets into no batch. Its callback runs in this thread, before waiting threads continue."""
        with callbacks:
            try:
                self._call(error)
            finally:
                self._error = error
            self._settle()

    def _settle(self) -> None:
        """Passes the outcome on to the base class if it has state, which calls those who wait for it there."""
        if "_condition" in self.__dict__ and self._finished():
            with suppress(InvalidStateError):  # it knows already
                error = self._error or (None if self._batch is None else self._batch.error)
                if error is None:
                    self.set_result(self._metadata())
                else:
                    self.set_exception(error)

    def complete(self) -> None:
        """Called when the batch has its outcome."""
        if self._batch is not None:  # otherwise an interrupt came before the batch was set, and the future failed by itself
            self._call(self._batch.error)

    def _call(self, error: KafkaSinkError | None) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return
        try:
            callback(self._metadata(), error)
        except KeyboardInterrupt:  # of the sending program, whose thread fails rows that get into no batch
            raise
        except BaseException:  # also sys.exit(), which would end the producer in the sender thread
            logger.exception("topic %s: on_completion raised an exception, which is ignored", self._waiter.topic)


class RecordThunk:
    """Futures of consecutive records in a batch. `callbacks`: whether any of them has a callback."""

    __slots__ = ("_callbacks", "_futures", "count")

    def __init__(self, futures: Sequence[RecordFuture], *, callbacks: bool) -> None:
        self._futures = futures
        self._callbacks = callbacks
        self.count = len(futures)

    def assigned(self, result: ProduceResult, first: int) -> None:
        for index, future in enumerate(self._futures, first):
            future._batch = result
            future._index = index

    def completed(self, result: ProduceResult, first: int) -> None:
        if self._callbacks:
            for future in self._futures:
                future.complete()

    def settled(self) -> None:
        if self._futures[0]._waiter.futures_are_watched:
            for future in self._futures:
                future._settle()

    def split(self, count: int) -> tuple[RecordThunk, RecordThunk]:
        head, tail = self._futures[:count], self._futures[count:]
        return RecordThunk(head, callbacks=self._callbacks), RecordThunk(tail, callbacks=self._callbacks)
