"""A proxy before an embedded broker that changes some of its answers: sizes, counts, offsets, times, names and ports."""

from __future__ import annotations

import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any, Final, Self

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.fields import BOOLEAN, FixedType, Message, StringType, wire_fields
from spark_kafka_sink.protocol.messages import decode_response, encode_response
from tests.broker.hostile_frames import HOSTILE

HOST: Final = "127.0.0.1"
_SIZE: Final = struct.Struct(">i")
_HEAD: Final = struct.Struct(">hhi")
_PATIENCE_S: Final = 10.0

Frame = bytes
_Change = Callable[[random.Random, AnyApi, int, Frame], Frame]


class HostileProxy:
    """Listens on a free port, and passes requests on to broker 1. One thread serves each connection.

    answers: how many it has sent. changed: how many of them are not the broker's. honest: while True it changes nothing.
    """

    def __init__(self, rng: random.Random, share: float = 0.25) -> None:
        self.answers = self.changed = 0
        self.honest = True
        self._rng = rng
        self._share = share
        self._lock = threading.Lock()
        self._server = socket.create_server((HOST, 0))
        self._open = set[socket.socket]()
        self._threads = [threading.Thread(target=self._accept, name="hostile-proxy", daemon=True)]
        self.port: int = self._server.getsockname()[1]
        self._broker_port = 0

    def serve(self, broker: EmbeddedBroker) -> None:
        self._broker_port = broker.server(1).port
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with suppress(OSError):  # some systems refuse it for a listener
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            ends = list(self._open)
        for end in ends:
            with suppress(OSError):  # its peer was first
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(_PATIENCE_S)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:  # the proxy is closed
                return
            thread = threading.Thread(target=self._serve, args=(client,), name="hostile-proxy", daemon=True)
            self._threads = [one for one in self._threads if one.is_alive()] + [thread]
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        """Serves a client until either end has gone."""
        with client, socket.create_connection((HOST, self._broker_port)) as broker, suppress(OSError, EOFError):
            with self._lock:
                self._open |= {client, broker}
            try:
                while True:
                    request = _frame(client)
                    key, version, _ = _HEAD.unpack_from(request)
                    broker.sendall(_SIZE.pack(len(request)) + request)
                    api = ALL_APIS[key]
                    client.sendall(self._answer(api, version, _frame(broker)))
            finally:
                with self._lock:
                    self._open -= {client, broker}

    def _answer(self, api: AnyApi, version: int, answer: Frame) -> bytes:
        """Returns the bytes to send, with the size before them."""
        self.answers += 1
        rng = self._rng
        # Without versions and metadata nothing else is ever asked.
        share = self._share / 4 if api.key in (ApiKey.API_VERSIONS, ApiKey.METADATA) else self._share
        if self.honest or rng.random() >= share:
            return _SIZE.pack(len(answer)) + answer
        self.changed += 1
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            change = rng.choices(_CHANGES, _WEIGHTS)[0]
            answer = change(rng, api, version, answer)
        if rng.random() < 0.03:
            return rng.choice(HOSTILE) + answer
        if rng.random() < 0.03:
            return (_SIZE.pack(len(answer)) + answer) * 2
        return _SIZE.pack(len(answer)) + answer


def _frame(peer: socket.socket) -> bytes:
    (size,) = _SIZE.unpack(_exactly(peer, _SIZE.size))
    return _exactly(peer, size)


def _exactly(peer: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        piece = peer.recv(min(size - len(found), 1 << 16))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)


# Changes of an answer. Most leave the correlation id, so that its fields are read.


def _hostile_number(rng: random.Random, _api: AnyApi, _version: int, answer: Frame) -> Frame:
    at, number = rng.randrange(min(4, len(answer)), len(answer) + 1), rng.choice(HOSTILE)
    return answer[:at] + number + answer[at + rng.choice((1, len(number))) :]


def _other_byte(rng: random.Random, _api: AnyApi, _version: int, answer: Frame) -> Frame:
    at = rng.randrange(min(4, len(answer)), len(answer) + 1)
    return answer[:at] + bytes((rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, rng.randrange(256))),)) + answer[at + 1 :]


def _truncated(rng: random.Random, _api: AnyApi, _version: int, answer: Frame) -> Frame:
    return answer[: rng.randrange(1, len(answer) + 1)]


def _longer(rng: random.Random, _api: AnyApi, _version: int, answer: Frame) -> Frame:
    return answer + rng.randbytes(rng.randrange(1, 40))


def _noise(rng: random.Random, _api: AnyApi, _version: int, answer: Frame) -> Frame:
    return answer[:4] + rng.randbytes(rng.randrange(60))


def _other_id(rng: random.Random, _api: AnyApi, _version: int, answer: Frame) -> Frame:
    return _SIZE.pack(rng.randrange(-5, 50)) + answer[4:]


def _other_field(rng: random.Random, api: AnyApi, version: int, answer: Frame) -> Frame:
    """An answer that is well formed and lies in one field."""
    try:
        correlation_id, body = decode_response(api, version, answer)
    except KafkaSinkError:
        return answer
    places = list(_places(body, version))
    if places:
        message, name, choices = rng.choice(places)
        setattr(message, name, rng.choice(choices))
    with suppress(KafkaSinkError):
        return b"".join(encode_response(api, version, correlation_id, body))
    return answer


_CODES: Final = tuple(range(-1, 130))
_STRINGS: Final = ("", "x", "\0", "ü" * 100, "x" * 5_000, "other")


def _places(message: Message, version: int) -> Iterator[tuple[Message, str, tuple[Any, ...]]]:
    """The fields that can lie, with what they may say."""
    for field in wire_fields(type(message)):
        if not field.is_in(version):
            continue
        value = getattr(message, field.name)
        match field.wire.type:
            case FixedType(code=code) if field.wire.type != BOOLEAN:
                limit = 1 << 8 * struct.calcsize(code) - 1
                numbers = (0, 1, -1, -limit, limit - 1, limit // 2)
                yield message, field.name, _CODES if "error_code" in field.name and code == "h" else numbers
            case StringType():
                yield message, field.name, _STRINGS
            case _ if isinstance(value, tuple):
                yield message, field.name, ((), value * 2, value[:1], value * 100)
        for inner in value if isinstance(value, tuple) else (value,):
            if isinstance(inner, Message):
                yield from _places(inner, version)


_WEIGHTED: Final[Mapping[_Change, int]] = {
    _other_field: 12,
    _hostile_number: 3,
    _other_byte: 3,
    _truncated: 1,
    _longer: 1,
    _noise: 1,
    _other_id: 1,
}
_CHANGES: Final = list(_WEIGHTED)
_WEIGHTS: Final = list(_WEIGHTED.values())


@contextmanager
def no_way_but_to(*ports: int) -> Iterator[None]:
    """Lets this process connect to these ports of the loopback address only, whatever addresses a hostile answer names."""
    lookup = socket.getaddrinfo

    def looked_up(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host != HOST or port not in ports:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return lookup(host, port, *arguments, **options)

    socket.getaddrinfo = looked_up
    try:
        yield
    finally:
        socket.getaddrinfo = lookup
