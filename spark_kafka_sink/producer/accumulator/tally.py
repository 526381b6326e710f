"""The outcome of one scope's records: counts and first error, written by the sender thread and awaited by others."""

from __future__ import annotations

import time
from collections.abc import Callable
from copy import deepcopy
from threading import TIMEOUT_MAX, Lock
from typing import TYPE_CHECKING

from spark_kafka_sink.change_signal import Changes
from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import DeliveryError, FlushTimeoutError, KafkaSinkError
from spark_kafka_sink.producer.base.lifecycle import wait_until
from spark_kafka_sink.reports.delivery_report import DeliveryReport

if TYPE_CHECKING:
    from spark_kafka_sink.producer.accumulator.rejected_batches import RejectedRecords


class Tally:
    """Counts and first error of one scope. A batch belongs to one tally, so scopes never mix.

    The scope's threads append and wait, and `appending` lets one append run at a time. The sender thread reports outcomes.
    `_lock` guards the counts and the first error.
    """

    def __init__(self, *, keeps_error: bool = True, rejected_limit: int | None = None) -> None:
        """keeps_error: whether a failed batch fails the flush and each later append; otherwise only its own records learn of it.
        rejected_limit: the most bytes of rejected records to keep until they are taken. None: they fail the flush as others do.
        """
        self._keeps_error = keeps_error
        self._rejected_limit = rejected_limit
        self._rejected: list[RejectedRecords] = []
        self._rejected_size = 0
        self._lock = Lock()
        self._changes = Changes()
        self._report = DeliveryReport()
        self._error: KafkaSinkError | None = None
        self._only_rejected = True  # all errors are of rejected records, so that the others continue
        self._failed_records = 0
        self._unfinished = 0
        self.appending = Lock()
        self.has_timestamps = False  # some rows had their own timestamps
        self.discarded = False

    @property
    def unfinished(self) -> int:
        with self._lock:
            return self._unfinished

    @property
    def failed_records(self) -> int:
        with self._lock:
            return self._failed_records

    def report(self) -> DeliveryReport:
        with self._lock:
            return deepcopy(self._report)

    def progress(self) -> tuple[int, int, int]:
        """Returns the acknowledged records, their bytes before compression, and the retries, in less time than a report takes."""
        with self._lock:
            return self._report.records, self._report.bytes, self._report.retries

    def raise_error(self) -> None:
        if self._error is None:  # without the lock: each append asks twice
            return
        with self._lock:
            raise self._delivery_error(self._error)

    @property
    def counts_on(self) -> bool:
        """Whether records were rejected, and others are unfinished of which it is worth knowing the outcome."""
        return self._error is not None and self._only_rejected and self._unfinished > 0

    def _delivery_error(self, error: KafkaSinkError) -> DeliveryError:
        """Returns the error with the counts. Requires the lock."""
        failed, acked = self._failed_records, self._report.records
        found = DeliveryError(
            f"{counted(failed, 'record')} failed, {counted(acked, 'was', 'were')} acknowledged: {error}",
            failed=failed,
            acked=acked,
        )
        found.__cause__ = error
        return found

    def take_rejected(self) -> list[RejectedRecords]:
        """Returns the records that brokers rejected since the last call, and forgets them."""
        with self._lock:
            taken, self._rejected, self._rejected_size = self._rejected, [], 0
            return taken

    def raise_kept(self, moment: str) -> None:
        """Raises DeliveryError if records that brokers rejected were not taken. They can still be taken.

        moment: what they should have been taken before.
        """
        if not self._rejected:
            return
        with self._lock:
            count, acked = sum(len(records.errors) for records in self._rejected), self._report.records
            first = self._rejected[0].errors[0]
        error = DeliveryError(
            f"{counted(count, 'record')} that brokers rejected {'was' if count == 1 else 'were'} not taken;"
            f" call flush() and take_rejected() before {moment}: {first}",
            failed=count,
            acked=acked,
        )
        error.__cause__ = first
        raise error

    def wait_for_acks(
        self, timeout_s: float | None, check_alive: Callable[[], None], outages: Callable[[], str] = lambda: ""
    ) -> None:
        """Returns when no batch is unfinished. Raises DeliveryError at the first failure, or FlushTimeoutError.

        Behind rejected records it waits for the others, so that the error counts them. `outages` returns why brokers are not
        connected.
        """

        def late(waited_s: float) -> KafkaSinkError:
            if self._error is not None:
                with self._lock:
                    return self._delivery_error(self._error)
            why = outages()
            batches = counted(self._unfinished, "batch was", "batches were")
            return FlushTimeoutError(f"flush: {batches} not acknowledged within {timeout_s} s{why and f'; {why}'}")

        def done() -> bool:
            return not self._unfinished or (self._error is not None and not self._only_rejected)

        self.wait_until(done, timeout_s, late, check_alive)
        self.raise_error()

    def wait_until(
        self,
        done: Callable[[], bool],
        timeout_s: float | None,
        late: Callable[[float], KafkaSinkError],
        check_alive: Callable[[], None],
    ) -> None:
        """Returns once `done()`. Raises `late(seconds)` after `timeout_s`, or what `check_alive` raises."""
        begun = time.monotonic()
        deadline = begun + (TIMEOUT_MAX if timeout_s is None else timeout_s)
        wait_until(self._changes, done, deadline, lambda: late(time.monotonic() - begun), check_alive)

    def told(self) -> None:
        with self._lock:
            self._changes.notify_all()

    # Called by the accumulator and the sender thread

    def batches_added(self, count: int) -> None:
        with self._lock:
            self._unfinished += count

    def request_sent(self, cluster_id: str | None) -> None:
        with self._lock:
            self._report.requests += 1
            if cluster_id is not None:
                self._report.clusters.add(cluster_id)

    def may_send_to(self, cluster_id: str | None) -> bool:
        """Returns whether records may be sent to a cluster: those of a scope all go to one."""
        return not self._keeps_error or self._report.clusters <= {cluster_id}

    def throttled(self, ms: int) -> None:
        with self._lock:
            self._report.throttled_ms += ms

    def rate_limited(self, ms: int) -> None:
        if ms:
            with self._lock:
                self._report.rate_limited_ms += ms

    def older_than_retention(self, records: int) -> None:
        with self._lock:
            self._report.older_than_retention += records

    def batch_not_acked(self, error_name: str, *, again: bool) -> None:
        with self._lock:
            self._report.errors[error_name] = self._report.errors.get(error_name, 0) + 1
            self._report.retries += again

    def batches_acked(self, batches: int, count: Callable[[DeliveryReport], None]) -> None:
        """Records that one response acknowledged this many batches; `count` adds them to the report."""
        with self._lock:
            count(self._report)
            self._unfinished -= batches
            self._changes.notify_all()

    def batch_failed(self, record_count: int, error: KafkaSinkError, *, rejected: bool = False) -> None:
        """Records that a batch failed. rejected: because of each of its records, so that other batches continue."""
        with self._lock:
            self._fail(record_count, error, rejected=rejected, batches=1)

    def records_failed(self, count: int, error: KafkaSinkError) -> None:
        """Records that `count` records of a batch were rejected with `error`; its other records continue."""
        with self._lock:
            self._fail(count, error, rejected=True)

    @property
    def keeps_rejected(self) -> bool:
        """Whether rejected records are kept for the task instead of failing the flush."""
        return self._rejected_limit is not None

    def may_keep(self, records: RejectedRecords) -> bool:
        return self._rejected_limit is not None and self._rejected_size + records.size <= self._rejected_limit

    def records_rejected(self, records: RejectedRecords, *, batches: int) -> None:
        """Keeps rejected records. batches: the number of batches that are finished with them."""
        with self._lock:
            self._rejected.append(records)
            self._rejected_size += records.size
            self._failed_records += len(records.errors)
            self._unfinished -= batches
            self._changes.notify_all()

    def _fail(self, count: int, error: KafkaSinkError, *, rejected: bool, batches: int = 0) -> None:
        self._failed_records += count
        self._only_rejected = self._only_rejected and rejected
        if self._error is None and self._keeps_error:
            self._error = error
        self._unfinished -= batches  # after the error, because a flush looks at the two without the lock
        self._changes.notify_all()
