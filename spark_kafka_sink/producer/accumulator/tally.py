"""The outcome of one scope's records: its counts and its first error, told by the sender's thread and waited for by others."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from threading import TIMEOUT_MAX, Condition, Lock

from spark_kafka_sink.errors import DeliveryError, FlushTimeoutError, KafkaSinkError
from spark_kafka_sink.producer.lifecycle import wait_until
from spark_kafka_sink.producer.report import DeliveryReport


class Tally:
    """One for each scope. A batch belongs to one tally, so one scope's errors and counts never mix with another's.

    Threads: the scope's threads append and wait, and `appending` lets one append run at a time. The sender's thread tells the
    outcomes. `_changed` guards the counts and the first error.
    """

    def __init__(self, *, keeps_error: bool = True) -> None:
        """keeps_error: a failed batch fails the flush and each later append; otherwise nobody but its records hears of it."""
        self._keeps_error = keeps_error
        self._changed = Condition(Lock())
        self._report = DeliveryReport()
        self._error: KafkaSinkError | None = None
        self._failed_records = 0
        self._unfinished = 0
        self.appending = Lock()
        self.has_timestamps = False  # some of its rows came with timestamps of their own
        self.discarded = False

    @property
    def unfinished(self) -> int:
        """The number of batches that are neither acked nor failed."""
        with self._changed:
            return self._unfinished

    @property
    def failed_records(self) -> int:
        """The number of records that failed."""
        with self._changed:
            return self._failed_records

    def report(self) -> DeliveryReport:
        """Returns a copy of the counts as they are now."""
        with self._changed:
            return deepcopy(self._report)

    def raise_error(self) -> None:
        """Raises DeliveryError if something of this scope has failed."""
        with self._changed:
            error, failed, acked = self._error, self._failed_records, self._report.records
        if error is not None:
            raise DeliveryError(f"{failed} records failed, {acked} were acked: {error}", failed=failed, acked=acked) from error

    def wait_for_acks(
        self, timeout_s: float | None, check_alive: Callable[[], None], outages: Callable[[], str] = lambda: ""
    ) -> None:
        """Returns when no batch is unfinished. Raises DeliveryError at the first that failed; FlushTimeoutError.

        outages: says why brokers are not connected.
        """

        def late(waited_s: float) -> FlushTimeoutError:
            why = outages()
            return FlushTimeoutError(f"flush: {self._unfinished} batches not acked within {timeout_s} s{why and f'; {why}'}")

        self.wait_until(lambda: not self._unfinished or self._error is not None, timeout_s, late, check_alive)
        self.raise_error()

    def wait_until(
        self,
        done: Callable[[], bool],
        timeout_s: float | None,
        late: Callable[[float], KafkaSinkError],
        check_alive: Callable[[], None],
    ) -> None:
        """Returns once `done()`. Raises `late(seconds)` after `timeout_s`, or what `check_alive` raises if that never comes."""
        begun = time.monotonic()
        deadline = begun + (TIMEOUT_MAX if timeout_s is None else timeout_s)
        wait_until(self._changed, done, deadline, lambda: late(time.monotonic() - begun), check_alive)

    def told(self) -> None:
        """The outcome of some record is known: whoever waits looks again."""
        with self._changed:
            self._changed.notify_all()

    # Told by the accumulator and by the sender's thread

    def batches_added(self, count: int) -> None:
        with self._changed:
            self._unfinished += count

    def request_sent(self) -> None:
        with self._changed:
            self._report.requests += 1

    def batch_not_acked(self, error_name: str, *, again: bool) -> None:
        with self._changed:
            self._report.errors[error_name] = self._report.errors.get(error_name, 0) + 1
            self._report.retries += again

    def batches_acked(self, batches: int, count: Callable[[DeliveryReport], None]) -> None:
        """One answer acked so many batches; `count` adds them to the report."""
        with self._changed:
            count(self._report)
            self._unfinished -= batches
            self._changed.notify_all()

    def batch_failed(self, record_count: int, error: KafkaSinkError) -> None:
        with self._changed:
            self._unfinished -= 1
            self._fail(record_count, error)

    def records_failed(self, count: int, error: KafkaSinkError) -> None:
        """`count` records of a batch failed with `error`; its others go on."""
        with self._changed:
            self._fail(count, error)

    def _fail(self, count: int, error: KafkaSinkError) -> None:
        self._failed_records += count
        if self._error is None and self._keeps_error:
            self._error = error
        self._changed.notify_all()
