"""Active faults: the handle that a test holds, and the places where requests, appends and transactions meet them."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.cluster.metadata_image import NO_LEADER, MetadataImage
from spark_kafka_sink.broker.faults.effects import Answer, Effect, Fail, Hold, Serve, Watch
from spark_kafka_sink.broker.faults.request_filter import SHAPES, IsAffected, RequestFilter, asks_for, name_or_id
from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.transaction.transaction_marker_channel_manager import WriteMarkers
from spark_kafka_sink.counts import counted
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message


class Fault:
    """An active fault, returned by the methods of `FaultInjection`. As a context manager, it is removed at the end.

    Any thread may call its methods.
    """

    def __init__(
        self, what: str, changed: threading.Condition, *, times: int | None = None, on_remove: Callable[[Fault], None]
    ) -> None:
        """Creates a fault. `times`: None is unlimited. `on_remove` is called once, without a lock."""
        self._what = what
        self._changed = changed
        self._times = times
        self._on_remove = on_remove
        self._hits = 0
        self._removed = False
        self.undo: Callable[[], object] = bool  # does nothing

    def __str__(self) -> str:
        return f"{self._what}, hit {counted(self._hits, 'time')}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.remove()

    @property
    def hits(self) -> int:
        """The number of hits; for a watch, the number of requests seen."""
        return self._hits

    @property
    def is_over(self) -> bool:
        """Whether it will hit nothing more, because it was removed or has hit `times` times."""
        return self._removed or self._hits == self._times

    def wait(self, times: int = 1, timeout: float = 60.0) -> None:
        """Waits until the fault has hit `times` times in all, for at most `timeout` seconds.

        Raises:
            TimeoutError: the fault was not hit often enough in time.
        """
        deadline = time.monotonic() + timeout
        with self._changed:
            while self._hits < times:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError(f"timed out after {timeout} s waiting for {times} hits: {self}")
                self._changed.wait(left_s)

    def remove(self) -> None:
        """Removes the fault. What it holds continues. Does nothing if it is removed."""
        if self._end():
            self._on_remove(self)
            self.undo()

    def forget(self) -> None:
        """Ends the fault because the broker stops. What it holds is dropped."""
        if self._end():
            self._on_remove(self)

    def _end(self) -> bool:
        with self._changed:
            was, self._removed = self._removed, True
            return not was

    def hit(self) -> bool:
        """Counts a hit. Returns False if the fault is over."""
        with self._changed:
            if self.is_over:
                return False
            self._hits += 1
            self._changed.notify_all()
            return True


class RequestFaults:
    """The faults of requests. The handler threads of all brokers use it, and any thread adds and removes faults.

    `_changed` guards the counts and the replacement of `_faults` and `_silent`, which are replaced as a whole and read without
    it. A Watch has no effect.
    """

    def __init__(self, changed: threading.Condition, image: Callable[[], MetadataImage]) -> None:
        self._changed = changed
        self._image = image
        self._faults: tuple[tuple[RequestFilter, Effect | Watch, Fault], ...] = ()
        self._silent: dict[int, Hold] = {}
        self._seen: Counter[tuple[int, ApiKey]] = Counter()

    def add(self, request_filter: RequestFilter, effect: Effect | Watch, fault: Fault) -> None:
        with self._changed:
            self._faults = (*(kept for kept in self._faults if not kept[2].is_over), (request_filter, effect, fault))

    def remove(self, fault: Fault) -> None:
        with self._changed:
            self._faults = tuple(kept for kept in self._faults if kept[2] is not fault)

    def silence(self, broker: int, hold: Hold) -> None:
        """Holds a broker's requests, and the responses to those that it already serves."""
        with self._changed:
            self._silent = {**self._silent, broker: hold}

    def end_silence(self, hold: Hold) -> None:
        with self._changed:
            self._silent = {broker: kept for broker, kept in self._silent.items() if kept is not hold}

    def seen(self, api: ApiKey, broker: int | None) -> int:
        with self._changed:
            return sum(count for (at, key), count in self._seen.items() if key is api and broker in (None, at))

    def handle(self, broker: int, request: Request, serve: Serve) -> None:
        """Serves a request at a broker, or applies the fault that matches it."""
        with self._changed:
            self._seen[broker, request.api.key] += 1
        silence = self._silent.get(broker)
        if silence is None:
            self._take(broker, serve, request)
        else:
            silence(request, partial(self._take, broker, serve), lambda topic, partition: True)

    def _take(self, broker: int, serve: Serve, request: Request) -> None:
        for request_filter, effect, fault in self._faults:
            if isinstance(effect, Watch) and self._is_about(request_filter, effect, broker, request) and fault.hit():
                effect.show(broker, request)
        self._meet(broker, serve, request)

    def _meet(self, broker: int, serve: Serve, request: Request) -> None:
        met = self._met(broker, request)
        if met is None:
            request.on_response = partial(self._silenced, broker)
            serve(request)
            return
        effect, is_affected = met
        if isinstance(effect, Hold) and not effect.applied:
            effect(request, partial(self._meet, broker, serve), is_affected)
        else:
            effect(request, serve, is_affected)

    def _silenced(self, broker: int, request: Request, answer: Message | None) -> bool:
        silence = self._silent.get(broker)
        return silence is not None and silence.keep_answer(request, answer)

    def _met(self, broker: int, request: Request) -> tuple[Effect, IsAffected] | None:
        """Returns the effect of the oldest active fault that matches the request."""
        for request_filter, effect, fault in self._faults:
            if isinstance(effect, Watch) or fault.is_over:
                continue
            if self._is_about(request_filter, effect, broker, request) and fault.hit():
                return effect, request_filter.is_affected(self._topic_of)
        return None

    def _is_about(self, request_filter: RequestFilter, effect: Effect | Watch, broker: int, request: Request) -> bool:
        if not request_filter.matches(broker, request, self._topic_of):
            return False
        if not isinstance(effect, (Answer, Fail)) or request.api.key not in SHAPES:
            return True
        # A request without partitions, such as a Metadata request for brokers alone, has nothing that could fail.
        return asks_for(request.api.key, request.body, request_filter.is_affected(self._topic_of))

    def _topic_of(self, topic: object) -> str | None:
        known = name_or_id(topic)
        return known if isinstance(known, str) else self._image().names.get(known)


class StorageFaults:
    """Full disks and held markers, checked before appends and before transactions end.

    `_changed` guards the replacement of the tuples, which are replaced as a whole and read without it.
    """

    def __init__(self, changed: threading.Condition, image: Callable[[], MetadataImage]) -> None:
        self._changed = changed
        self._image = image
        self._full: tuple[tuple[RequestFilter, Fault], ...] = ()
        self._held: tuple[Fault, ...] = ()

    def fill(self, request_filter: RequestFilter, fault: Fault) -> None:
        with self._changed:
            self._full = (*self._full, (request_filter, fault))

    def hold_markers(self, fault: Fault) -> None:
        with self._changed:
            self._held = (*self._held, fault)

    def remove(self, fault: Fault) -> None:
        with self._changed:
            self._full = tuple(kept for kept in self._full if kept[1] is not fault)
            self._held = tuple(kept for kept in self._held if kept is not fault)

    def check_disk(self, topic: str, index: int, size: int) -> None:
        """Raises OSError before an append to a full disk. The log converts it to KAFKA_STORAGE_ERROR."""
        if not self._full:
            return
        state = self._image().partition(topic, index)
        leader = NO_LEADER if state is None else state.leader
        if any(request_filter.is_about(leader, topic) and fault.hit() for request_filter, fault in self._full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), f"{topic}-{index}")

    def holding(self, write: WriteMarkers) -> WriteMarkers:
        """Returns a `write` that fails while markers are held, so that the coordinator retries."""

        def write_or_hold(marker: EndTransactionMarker, partitions: Sequence[tuple[str, int]]) -> None:
            if any(fault.hit() for fault in self._held):
                raise ApiException(ErrorCode.NOT_LEADER_OR_FOLLOWER, "transaction markers are held by a test")
            write(marker, partitions)

        return write_or_hold
