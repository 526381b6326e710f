"""The methods of `broker.faults`: which fault occurs, where and how often."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final, TypedDict, Unpack

from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage
from spark_kafka_sink.broker.faults import effects
from spark_kafka_sink.broker.faults.effects import Change, Effect, Serve, Watch
from spark_kafka_sink.broker.faults.fault import Fault, RequestFaults, StorageFaults
from spark_kafka_sink.broker.faults.request_filter import RequestFilter
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.errors import OptionError, UsageError
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

INT16: Final = range(-(2**15), 2**15)


class Where(TypedDict, total=False):
    """Selects the requests that a fault hits.

    Attributes:
        times: the number of requests to hit. Defaults to 1. None hits all of them until the fault is removed.
        broker: hits only requests to the broker with this id.
        topic: hits only requests that include this topic.
        partition: hits only requests that include this partition of the topic.
        client_id: hits only requests of this client.
        when: called with each request's body, a message of `protocol/`. Returns whether to hit the request.
    """

    times: int | None
    broker: int | None
    topic: str | None
    partition: int | None
    client_id: str | None
    when: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """The part of a running broker that faults use. `disconnect` and `reconnect` take a broker's id."""

    timer: Timer
    image: Callable[[], MetadataImage]
    disconnect: Callable[[int], None]
    reconnect: Callable[[int], None]
    delay_markers: Callable[[float], None]
    delay_verification: Callable[[float], None]


class FaultInjection:
    """Injects faults for tests of clients, as `EmbeddedBroker.faults`.

    `api` is the API whose requests are hit. `where` stands for the keywords of `Where`, which select requests and limit their
    number. When a handler takes a request, the oldest fault that matches hits it; no other fault does.

    Each method returns a `Fault` with `hits`, `wait()` and `remove()`. The end of a `with` block removes it too. Impossible
    faults raise OptionError.

    Any thread may call the methods. Only `unreachable`, and removing its fault, need the thread that starts and stops brokers.
    """

    def __init__(self, brokers: Collection[int]) -> None:
        """Creates a set of faults, empty at first. `brokers`: the ids of all brokers."""
        self._brokers = brokers
        self._running: RunningBroker | None = None
        self._changed = threading.Condition()
        self._faults: list[Fault] = []
        self._marker_delays_ms: dict[Fault, float] = {}
        self._verification_delays_ms: dict[Fault, float] = {}
        self._requests = RequestFaults(self._changed, self._image)
        self.storage = StorageFaults(self._changed, self._image)

    # Responses

    def fail(
        self, api: ApiKey, error: ErrorCode | int, *, message: str | None = None, applied: bool = False, **where: Unpack[Where]
    ) -> Fault:
        """Answers requests of `api` with an error.

        If the API has partitions, each partition has the error. With `topic` and `partition`, only those have it and the others
        are served. A Metadata response has the error beside its topics and lists the brokers as usual.

        Args:
            error: the error code: any number except 0.
            message: the error message, used if the response has a field for one.
            applied: serves the request before it fails, like a broker that crashes afterwards. By default the request is not
                served.

        Raises:
            OptionError: `error` is not an error code, or no request can match.
        """
        if not error or error not in INT16:
            raise OptionError(f"{error} is not an error code", option="error")
        effect = effects.Fail(int(error), message, applied)
        named = ErrorCode(error).name if error in {int(code) for code in ErrorCode} else str(int(error))
        return self._on_requests(f"{named} for", effect, api, where)

    def alter(self, api: ApiKey, change: Change, **where: Unpack[Where]) -> Fault:
        """Serves the request and answers with `change(request body, response)`, a message of `protocol/`. None closes the
        connection.
        """
        return self._on_requests("an altered answer to", effects.Alter(change), api, where)

    def answer(self, api: ApiKey, make: Callable[[Any], Message | None], **where: Unpack[Where]) -> Fault:
        """Answers with `make(request body)`, a message of `protocol/`, instead of serving the request.

        None closes the connection. With `topic` or `partition`, the body has only these parts, and the broker serves the others.
        """
        return self._on_requests("an answer in place of", effects.Answer(make), api, where)

    def delay(self, api: ApiKey, ms: float, **where: Unpack[Where]) -> Fault:
        """Serves the request at once and sends the response `ms` milliseconds later."""
        effect = effects.Delay(self._timer, _not_negative("ms", ms))
        return self._on_requests(f"{ms} ms of delay of", effect, api, where)

    def throttle(self, api: ApiKey, ms: float, **where: Unpack[Where]) -> Fault:
        """Serves the request and asks the client for a pause, like a broker whose quota is exceeded (KIP-219).

        The connection's next request is not read for `ms` milliseconds.

        Raises:
            OptionError: the API's responses have no throttle time.
        """
        if "throttle_time_ms" not in {each.name for each in fields(ALL_APIS[api].response)}:
            raise OptionError(f"a response to {api.name} has no throttle time", option="api")
        pause_ms = int(_not_negative("ms", ms))
        effect = effects.Alter(lambda _, answer: replace(answer, throttle_time_ms=pause_ms))
        return self._on_requests(f"{pause_ms} ms of throttling after", effect, api, where)

    def hold(self, api: ApiKey, *, applied: bool = False, **where: Unpack[Where]) -> Fault:
        """Holds the request until the fault is removed. It then continues as if it had just arrived, so other faults can hit it.

        `applied`: serves the request at once and holds its response.
        """
        hold = effects.Hold(applied=applied)
        return self._on_requests("a hold of", hold, api, where, undo=hold.release)

    def watch(self, api: ApiKey, *, on_request: Callable[[int, Any], object] | None = None, **where: Unpack[Where]) -> Fault:
        """Counts requests of `api`, so that a test can wait for them. It changes nothing else.

        Args:
            on_request: called with the broker's id and the body of each request, before and on the thread that serves it. A
                fault that it adds can hit this request.
        """
        return self._on_requests("a watch of", effects.Watch(on_request), api, where)

    def seen(self, api: ApiKey, *, broker: int | None = None) -> int:
        """Returns the number of requests of the API so far, at all brokers or at one `broker`."""
        return self._requests.seen(api, broker)

    # Connections

    def cut_before(self, api: ApiKey, **where: Unpack[Where]) -> Fault:
        """Closes the connection without serving the request."""
        return self._on_requests("a cut before", effects.cut_before, api, where)

    def cut_after(self, api: ApiKey, **where: Unpack[Where]) -> Fault:
        """Serves the request and closes the connection instead of answering."""
        return self._on_requests("a cut after", effects.cut_after, api, where)

    def truncate(self, api: ApiKey, *, keep: int = 6, **where: Unpack[Where]) -> Fault:
        """Truncates the response after its size field and `keep` bytes, and closes the connection."""
        effect = effects.Truncate(int(_not_negative("keep", keep)))
        return self._on_requests("a truncated answer to", effect, api, where)

    def wrong_correlation_id(self, api: ApiKey, **where: Unpack[Where]) -> Fault:
        """Answers with a correlation id that no request had."""
        effect = effects.wrong_correlation_id
        return self._on_requests("a wrong correlation id for", effect, api, where)

    def unreachable(self, broker: int, *, black_hole: bool = False) -> Fault:
        """Makes a broker unreachable until the fault is removed. The cluster does not notice: leadership does not move.

        Args:
            broker: the broker's id.
            black_hole: accepts connections but answers nothing. Requests that arrive are served when the fault is removed. By
                default, connections are closed and new ones are refused.
        """
        request_filter = RequestFilter(broker=broker)
        request_filter.check(self._brokers.__contains__)
        running = self._started()
        if not black_hole:
            fault = self._new(f"broker {broker} is unreachable")
            running.disconnect(broker)
            fault.undo = lambda: running.reconnect(broker)
            return fault
        fault = self._new(f"broker {broker} answers nothing")
        hold = effects.Hold(on_keep=fault.hit)
        self._requests.silence(broker, hold)

        def undo() -> None:
            self._requests.end_silence(hold)
            hold.release()

        fault.undo = undo
        return fault

    # Storage

    def disk_full(self, *, broker: int | None = None, topic: str | None = None) -> Fault:
        """Fails appends with KAFKA_STORAGE_ERROR: all, or only those to partitions that `broker` leads, or to `topic`, which
        may be internal.
        """
        request_filter = RequestFilter(broker=broker, topic=topic)
        request_filter.check(self._brokers.__contains__)
        fault = self._new(f"a full disk of {request_filter}")
        self.storage.fill(request_filter, fault)
        return fault

    def hold_markers(self) -> Fault:
        """Holds transaction markers until the fault is removed (and up to 0.1 s longer); outcomes are decided without them.

        In the meantime the producer receives CONCURRENT_TRANSACTIONS, and consumers that read committed records wait.
        """
        fault = self._new("transaction markers are held")
        self.storage.hold_markers(fault)
        return fault

    def delay_markers(self, ms: float) -> Fault:
        """Holds markers like `hold_markers`, for `ms` milliseconds after each outcome. Counts no hits."""
        return self._delayed(f"transaction markers come {ms} ms later", self._marker_delays_ms, ms)

    def delay_verification(self, ms: float) -> Fault:
        """Delays the verification of transactions by `ms` milliseconds. Counts no hits.

        Brokers verify with the transaction coordinator before they store a transaction's first records in a partition (KIP-890).
        """
        return self._delayed(f"the verification of transactions takes {ms} ms longer", self._verification_delays_ms, ms)

    def clear(self) -> None:
        """Removes all faults."""
        for fault in self._active():
            fault.remove()

    # Used by the broker

    def attach(self, running: RunningBroker) -> None:
        """Connects the faults to a broker that starts."""
        self._running = running
        self._apply_delays()

    def detach(self) -> None:
        """Ends all faults because the broker stops."""
        for fault in self._active():
            fault.forget()
        self._running = None

    def of_broker(self, broker: int) -> Callable[[Request, Serve], None]:
        """Returns the `Faults` hook for the KafkaApis of one broker."""
        return partial(self._requests.handle, broker)

    def _image(self) -> MetadataImage:
        return MetadataImage() if self._running is None else self._running.image()

    def _timer(self) -> Timer | None:
        running = self._running  # it may stop in the meantime
        return None if running is None else running.timer

    def _started(self) -> RunningBroker:
        if self._running is None:
            raise UsageError("the broker is not started: call start() or use it in a `with` statement")
        return self._running

    def _active(self) -> list[Fault]:
        with self._changed:
            return list(self._faults)

    def _on_requests(
        self, what: str, effect: Effect | Watch, api: ApiKey, where: Where, undo: Callable[[], None] | None = None
    ) -> Fault:
        narrowed = where.get("broker"), where.get("topic"), where.get("partition"), where.get("client_id"), where.get("when")
        request_filter = RequestFilter(api, *narrowed)
        request_filter.check(self._brokers.__contains__)
        times = where.get("times", None if isinstance(effect, Watch) else 1)
        if times is not None and times < 1:
            raise OptionError(f"times={times} is not valid: it must be at least 1, or None for no limit", option="times")
        fault = self._new(f"{what} {request_filter}", times)
        if undo is not None:
            fault.undo = undo
        self._requests.add(request_filter, effect, fault)
        return fault

    def _new(self, what: str, times: int | None = None) -> Fault:
        fault = Fault(what, self._changed, times=times, on_remove=self._forget)
        with self._changed:
            self._faults.append(fault)
        return fault

    def _delayed(self, what: str, delays_ms: dict[Fault, float], ms: float) -> Fault:
        fault = self._new(what)
        delays_ms[fault] = _not_negative("ms", ms)
        fault.undo = self._apply_delays
        self._apply_delays()
        return fault

    def _forget(self, fault: Fault) -> None:
        with self._changed:
            self._faults.remove(fault)
            self._marker_delays_ms.pop(fault, None)
            self._verification_delays_ms.pop(fault, None)
        self._requests.remove(fault)
        self.storage.remove(fault)

    def _apply_delays(self) -> None:
        with self._changed:
            markers = max(self._marker_delays_ms.values(), default=0.0)
            verification = max(self._verification_delays_ms.values(), default=0.0)
        if self._running is not None:
            self._running.delay_markers(markers)
            self._running.delay_verification(verification)


def _not_negative(name: str, value: float) -> float:
    if value < 0:
        raise OptionError(f"{name}={value} must not be negative", option=name)
    return value
