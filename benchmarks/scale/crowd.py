"""Many producers in a few processes, as on many workers. Only the sink's client runs, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count, pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import pyarrow as pa

from spark_kafka_sink.client import network_client
from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.client.connections import Connections, LostConnection
from spark_kafka_sink.producer.base.producer_record import RecordMetadata
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.records.columns import RecordColumns

PROCESSES = 4
CONNECT = "connect"
_ANSWER_S, _END_S, _JOIN_S = 240.0, 60.0, 20.0


class Event(NamedTuple):
    """A connection attempt, or a request other than Produce. kind: CONNECT, or the name of the API. at: on time.monotonic."""

    at: float
    kind: str


class Row(NamedTuple):
    """A delivered row. Times are on time.monotonic's clock, which all processes of a machine share."""

    sent: float
    acked: float


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one process. first, producers: the number of its first producer, and how many it has."""

    bootstrap_servers: str
    topic: str
    first: int
    producers: int
    metadata_max_age_ms: int

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.producers)


_events: list[Event] = []


class _Counted(Connections):
    """Connections that note each attempt and each request. Produce is left out: it grows with rows, not with workers."""

    def connect(self, node: Node, now_ms: int) -> LostConnection | None:
        _events.append(Event(time.monotonic(), CONNECT))
        return super().connect(node, now_ms)

    def send(self, node_id: int, api: AnyApi, *arguments: Any, **more: Any) -> None:
        if api.key is not ApiKey.PRODUCE:
            _events.append(Event(time.monotonic(), api.request.__name__.removesuffix("Request")))
        super().send(node_id, api, *arguments, **more)


@dataclass(slots=True)
class _Crowd:
    """The producers of one process. Its methods are called one after the other by `_serve`, in the main thread.

    Threads: senders append to `rows` and `errors`; `_steadily` alone sends between `begin` and `finish`.
    """

    settings: Settings
    producers: dict[int, Producer] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    sent: dict[int, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self, at: float) -> list[float]:
        """Makes all producers at one moment. Returns when each had delivered its first row, in seconds after it."""
        return self._at_once(at, self._start)

    def begin(self, every_s: float) -> None:
        """Begins to send a row of each producer every `every_s` seconds."""
        self._thread = threading.Thread(target=self._steadily, args=(every_s,), name="rows", daemon=True)
        self._thread.start()

    def finish(self) -> tuple[list[Row], dict[int, int], list[str]]:
        """Ends what `begin` began. Returns the delivered rows, how many each producer has sent, and errors."""
        assert self._thread is not None
        self._done.set()
        self._thread.join(_JOIN_S)
        for producer in self.producers.values():
            producer.flush()
        return self.rows, self.sent, self.errors

    def take_events(self) -> list[Event]:
        taken = list(_events)
        _events.clear()
        return taken

    def transactions(self, at: float) -> list[float]:
        """Opens a transaction with one row in as many new producers at one moment, and leaves it open, as a task does.

        Returns when each producer was closed, in seconds after that moment.
        """
        return self._at_once(at, self._transaction)

    def close(self) -> None:
        with ThreadPoolExecutor(len(self.producers) or 1) as pool:
            list(pool.map(Producer.close, self.producers.values()))

    def _at_once(self, at: float, act: Callable[[int], None]) -> list[float]:
        def timed(number: int) -> float:
            time.sleep(max(0.0, at - time.monotonic()))
            act(number)
            return time.monotonic() - at

        with ThreadPoolExecutor(self.settings.producers) as pool:
            return list(pool.map(timed, self.settings.numbers))

    def _options(self) -> dict[str, object]:
        return {
            "bootstrap.servers": self.settings.bootstrap_servers,
            "metadata.max.age.ms": self.settings.metadata_max_age_ms,
        }

    def _start(self, number: int) -> None:
        self.producers[number] = producer = Producer(self._options())
        self.sent[number] = 0
        self._send(number)
        producer.flush()

    def _send(self, number: int) -> None:
        value = f"{number}:{self.sent[number]}".encode()
        self.sent[number] += 1
        self.producers[number].send(self.settings.topic, value, on_completion=partial(self._delivered, time.monotonic()))

    def _delivered(self, sent: float, _: RecordMetadata | None, error: BaseException | None) -> None:
        if error is None:
            self.rows.append(Row(sent, time.monotonic()))
        else:
            self.errors.append(str(error))

    def _steadily(self, every_s: float) -> None:
        """Spreads the rows evenly. All processes begin at about the same time."""
        begun = time.monotonic()
        step_s = every_s / self.settings.producers
        for turn in count():
            if self._done.wait(max(0.0, begun + turn * step_s - time.monotonic())):
                return
            self._send(self.settings.first + turn % self.settings.producers)

    def _transaction(self, number: int) -> None:
        with (
            Producer(self._options(), transactional=True) as producer,
            producer.transaction(f"{self.settings.topic}-{number}") as scope,
        ):
            scope.append(self.settings.topic, RecordColumns(1, pa.array([b"open"])))
            scope.prepare()


def _serve(settings: Settings, calls: Connection) -> None:
    """Runs one process: answers (method, arguments) with (result, None) or (None, error), until the other end closes."""
    setattr(network_client, "Connections", _Counted)  # noqa: B010
    crowd = _Crowd(settings)
    while True:
        try:
            name, arguments = calls.recv()
        except EOFError:
            return
        try:
            calls.send((getattr(crowd, name)(*arguments), None))
        except Exception as error:
            calls.send((None, f"{type(error).__name__}: {error}"))


class Crowd:
    """Producers of `workers` workers in at most 4 processes, which end with the `with`. Used by one thread."""

    def __init__(self, bootstrap_servers: str, topic: str, workers: int, metadata_max_age_ms: int) -> None:
        processes = min(PROCESSES, workers)
        places = [workers * place // processes for place in range(processes + 1)]
        self._settings = [
            Settings(bootstrap_servers, topic, first, end - first, metadata_max_age_ms) for first, end in pairwise(places)
        ]
        self._stack = ExitStack()
        self._calls: list[Connection] = []
        self.pids: list[int] = []

    def __enter__(self) -> Crowd:
        with ExitStack() as stack:
            for settings in self._settings:
                stack.enter_context(self._process(settings))
            self.call("take_events")  # all have imported what they need
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextmanager
    def _process(self, settings: Settings) -> Iterator[None]:
        context = get_context("spawn")
        own, other = context.Pipe()
        process = context.Process(target=_serve, args=(settings, other), name=f"workers-from-{settings.first}", daemon=True)
        process.start()
        other.close()
        assert process.pid is not None
        self._calls.append(own)
        self.pids.append(process.pid)
        try:
            yield
        finally:
            own.close()
            process.join(_END_S)
            if process.is_alive():
                process.kill()
                process.join()

    def call(self, name: str, *arguments: object) -> list[Any]:
        """Calls a method of `_Crowd` in all processes at once. Returns their results. Raises RuntimeError if one fails."""
        for calls in self._calls:
            calls.send((name, arguments))
        answers = []
        deadline = time.monotonic() + _ANSWER_S
        for calls in self._calls:
            if not calls.poll(max(0.0, deadline - time.monotonic())):
                raise RuntimeError(f"{name}: a process with producers has not answered within {_ANSWER_S:g} s")
            answers.append(calls.recv())
        if problems := [error for _, error in answers if error is not None]:
            raise RuntimeError(f"{name}: {problems[0]} ({len(problems)} of {len(answers)} processes failed)")
        return [result for result, _ in answers]
