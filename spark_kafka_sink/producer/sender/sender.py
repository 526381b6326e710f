"""The loop of the sender thread: sends what is ready and handles responses until the producer is closed."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass

from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.errors import KafkaSinkError, UsageError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.base.lifecycle import Lifecycle
from spark_kafka_sink.producer.column_appender import UserClasses
from spark_kafka_sink.producer.identity import Identity
from spark_kafka_sink.producer.metrics.client_telemetry_sender import ClientTelemetrySender
from spark_kafka_sink.producer.sender.produce_requests import ProduceRequests
from spark_kafka_sink.producer.single_records.record_buffer import RecordBuffer

logger = logging.getLogger(__name__)

MAX_POLL_MS = 60_000


@dataclass(eq=False, repr=False)
class Sender:
    """The thread that owns a producer's client, numbers and sealed batches. Others call only `close` and `force_close`."""

    _lifecycle: Lifecycle
    _client: NetworkClient
    _accumulator: RecordAccumulator
    _records: RecordBuffer  # single records that are in no batch yet
    _identity: Identity
    _requests: ProduceRequests
    _user_classes: UserClasses  # closed when the thread ends
    _telemetry: ClientTelemetrySender
    _closing: bool = False
    _force: bool = False

    # Any thread

    def close(self) -> None:
        """Sends what is waiting, then ends."""
        self._accumulator.closed = True
        self._closing = True
        self._lifecycle.wake_sender()

    def force_close(self) -> None:
        """Ends now. Unfinished records fail."""
        self._force = True
        self.close()

    # Sender thread

    def run(self) -> None:
        """Runs until the producer is closed, fails, or has been idle for too long."""
        try:
            while not self.has_ended():
                self.run_once(monotonic_ms())
        except Exception as error:  # whatever the error is, no call may wait for a response that will never arrive
            logger.exception("the sender thread failed")
            self._lifecycle.fail(KafkaSinkError(f"the sender thread failed: {type(error).__name__}: {error}"))
        finally:
            self._accumulator.closed = True
            with ExitStack() as ends:  # runs each of them, whatever the others raise; the last one registered runs first
                ends.callback(self._user_classes.close)
                ends.callback(self._fail_what_is_left)
                ends.callback(self._requests.close)

    def _fail_what_is_left(self) -> None:
        error = self._lifecycle.failure or UsageError("the producer was closed before these records were acknowledged")
        try:
            self._identity.fail(error)
            self._requests.delivery.fail_all(error)
        finally:
            self._records.fail(error)

    def has_ended(self) -> bool:
        if self._force or self._lifecycle.failure is not None:
            return True
        if not self._closing and self._ms_until_idle_close(monotonic_ms()) > 0:
            return False
        if self._records.has_rows() or self._accumulator.has_incomplete():  # in the order of _is_flushed
            return False
        if self._closing and not self._identity.close(monotonic_ms()):
            return False
        return self._telemetry.close(monotonic_ms())

    def run_once(self, now_ms: int) -> None:
        """Runs one round: sends what may be sent now, and waits for the next event."""
        self._requests.delivery.expire(now_ms)
        self._identity.resolve_gaps()
        telemetry = self._telemetry
        if now_ms >= telemetry.due_ms:  # before records: on a busy connection they take each place that becomes free
            telemetry.step(now_ms)
        timeout = self._records.drain_due(now_ms)
        idle_ms = self._ms_until_idle_close(now_ms) or telemetry.ms_until_end(now_ms)
        timeout = min(timeout, self._requests.send_ready(now_ms), idle_ms)
        self._hurry()
        if self._closing and self.has_ended():  # the last batch may just have expired: no response will end the poll
            return
        timeout = min(timeout, self._identity.step(now_ms, self._is_flushed), self._requests.outages.look(now_ms))
        if telemetry.due_ms > now_ms:  # otherwise it waits for a connection
            timeout = min(timeout, telemetry.due_ms - now_ms)
        responses = self._client.poll(max(0, min(timeout, MAX_POLL_MS)), now_ms)
        self._requests.polled(responses)
        for response in responses:
            if response.tag is telemetry:
                telemetry.answered(response, monotonic_ms())
                continue
            takes_it = self._requests if isinstance(response.tag, list) else self._identity
            failure = takes_it.answered(response, monotonic_ms())
            if failure is not None:
                self._lifecycle.fail(failure)

    def _hurry(self) -> None:
        """Sends or fails waiting records at once if a transaction is ending: it can end only when none of its records wait or are
        in flight; later ones would belong to the next transaction.
        """
        error = self._identity.unsent_error()
        if error is not None:
            self._records.drop(error)
            self._requests.delivery.fail_unsent(error)
        elif self._identity.is_committing:
            self._accumulator.flush(None)

    def _is_flushed(self) -> bool:
        """Returns whether no record waits or is in flight. Checks the places in the order in which records pass them; otherwise a
        record that another thread moves could be missed in both.
        """
        return not (self._records.has_rows() or self._accumulator.has_incomplete() or self._requests.in_flight)

    def _ms_until_idle_close(self, now_ms: int) -> int:
        return self._lifecycle.ms_until_idle_close(now_ms, self._accumulator.has_incomplete)
