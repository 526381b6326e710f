"""A TCP proxy on the loopback address that cuts, stalls, slows, swallows and refuses what goes through it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, Self

from tests.kafka.ports import free_ports

Way = Literal["to_server", "to_client"]
Chunks = asyncio.Queue[tuple[float, bytes]]

CALL_DEADLINE_S = 60.0
CHUNK = 64 * 1024
CHUNKS_HELD = 16  # in each direction of a connection; past 1 MB the sender feels that nothing is taken
RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER with no time to linger: RST instead of FIN


@dataclass(slots=True)
class _Fault:
    """Faults for the bytes of one direction, on every connection. The proxy's loop owns it."""

    flowing: asyncio.Event = field(default_factory=asyncio.Event)
    delay_s: float = 0.0
    bytes_per_s: float | None = None
    swallow: bool = False
    cut_after: int | None = None

    def clear(self) -> None:
        self.flowing.set()
        self.delay_s, self.bytes_per_s, self.swallow, self.cut_after = 0.0, None, False, None


@dataclass(slots=True, eq=False)
class _Connection:
    client: asyncio.StreamWriter
    server: asyncio.StreamWriter
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def close(self, *, reset: bool) -> None:
        for task in self.tasks:
            task.cancel()
        for writer in (self.client, self.server):
            _close(writer, reset=reset)


def _close(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if writer.transport.is_closing():
        return
    if reset:
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        writer.transport.abort()
    else:
        writer.close()


class TcpProxy:
    """TCP proxy that listens on `address` and forwards to the address of `forward_to`. Faults apply to open and new connections.

    One thread runs an event loop that owns the sockets and the faults; the methods below may be called from any thread and
    return when the fault is in force. `close()` ends the thread.
    """

    def __init__(self, upstream: str | None = None) -> None:
        """upstream: "host:port"; may also be given later, as a broker must know the proxy's address before it has its own."""
        self._upstream = upstream
        self.port = free_ports(1)[0]
        self.address = f"127.0.0.1:{self.port}"
        self.accepted = 0  # connections so far
        self.cuts = 0  # times that cut_after() struck
        self._connections: set[_Connection] = set()
        self._unexpected: list[BaseException] = []
        self._server: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._faults: dict[Way, _Fault] = {"to_server": _Fault(), "to_client": _Fault()}
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"proxy-{self.port}", daemon=True)
        self._thread.start()
        self.heal()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # What a test says

    @property
    def open_connections(self) -> int:
        return len(self._connections)

    def forward_to(self, upstream: str) -> None:
        """Sets the destination "host:port" of new connections. Open ones keep theirs."""
        self._upstream = upstream

    def cut(self) -> None:
        """Resets all open connections, on both sides."""
        self._call(self._cut())

    def cut_after(self, count: int, way: Way) -> None:
        """Resets, once, the connection of byte `count` + 1 from now in this direction. (0, "to_client"): an answer is lost."""
        self._call(self._set(way, cut_after=count))

    def pause(self, way: Way | None = None) -> None:
        """Holds bytes until `resume()`, in both directions if `way` is None. Nothing is lost."""
        self._call(self._flow(way, False))

    def resume(self, way: Way | None = None) -> None:
        self._call(self._flow(way, True))

    def delay(self, seconds: float, way: Way | None = None) -> None:
        """Delays each byte by this much. As on a long line, many bytes may be in flight."""
        self._call(self._set(way, delay_s=seconds))

    def rate_limit(self, bytes_per_s: float | None, way: Way | None = None) -> None:
        """Limits the rate per connection. None: no limit."""
        self._call(self._set(way, bytes_per_s=bytes_per_s))

    def black_hole(self, way: Way | None = None) -> None:
        """Accepts bytes and connections and forwards nothing. Swallowed bytes never arrive."""
        self._call(self._set(way, swallow=True))

    def refuse(self) -> None:
        """Refuses new connections and keeps open ones. Call `cut()` after it to simulate a dead host."""
        self._call(self._refuse())

    def heal(self) -> None:
        """Undoes every fault. Connections that were cut stay closed."""
        self._call(self._heal())

    def close(self) -> None:
        """Ends all connections and the thread. Raises an error of the proxy itself, if there was one."""
        if self._loop.is_closed():
            return
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_DEADLINE_S)
        self._loop.close()
        if self._unexpected:
            raise self._unexpected[0]

    # In the loop's thread

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(CALL_DEADLINE_S)

    def _some(self, way: Way | None) -> list[_Fault]:
        return list(self._faults.values()) if way is None else [self._faults[way]]

    async def _set(self, way: Way | None, **fields: Any) -> None:
        for fault in self._some(way):
            for name, value in fields.items():
                setattr(fault, name, value)

    async def _flow(self, way: Way | None, flowing: bool) -> None:
        for fault in self._some(way):
            if flowing:
                fault.flowing.set()
            else:
                fault.flowing.clear()

    async def _cut(self) -> None:
        for connection in list(self._connections):
            connection.close(reset=True)

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def _heal(self) -> None:
        for fault in self._faults.values():
            fault.clear()
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def _end(self) -> None:
        await self._refuse()
        await self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.wait(others, timeout=CALL_DEADLINE_S / 2) if others else None

    async def _serve(self, client_reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            host, _, port = (self._upstream or "").rpartition(":")
            server_reader, server = await asyncio.open_connection(host, int(port))
        except (OSError, ValueError):
            _close(client, reset=True)
            return
        connection = _Connection(client, server)
        self._connections.add(connection)
        self._start(connection, client_reader, server, self._faults["to_server"])
        self._start(connection, server_reader, client, self._faults["to_client"])
        try:
            done, _ = await asyncio.wait(connection.tasks, return_when=asyncio.FIRST_EXCEPTION)
            failures = [error for task in done if not task.cancelled() and (error := task.exception()) is not None]
            self._unexpected += [error for error in failures if not isinstance(error, OSError)]
            connection.close(reset=bool(failures))
        finally:
            connection.close(reset=True)
            self._connections.discard(connection)

    def _start(self, to: _Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: _Fault) -> None:
        chunks: Chunks = asyncio.Queue(CHUNKS_HELD)
        to.tasks.append(self._loop.create_task(_take(reader, chunks, fault)))
        to.tasks.append(self._loop.create_task(self._give(chunks, writer, fault, to)))

    async def _give(self, chunks: Chunks, writer: asyncio.StreamWriter, fault: _Fault, connection: _Connection) -> None:
        while True:
            due, data = await chunks.get()
            await asyncio.sleep(max(0.0, due - self._loop.time()))
            await fault.flowing.wait()
            if not data:
                writer.write_eof()
                return
            if fault.swallow:
                continue
            if fault.cut_after is not None:
                if len(data) > fault.cut_after:
                    writer.write(data[: fault.cut_after])
                    fault.cut_after = None
                    self.cuts += 1
                    connection.close(reset=True)
                    return
                fault.cut_after -= len(data)
            await _write(writer, data, fault)


async def _take(reader: asyncio.StreamReader, chunks: Chunks, fault: _Fault) -> None:
    """Reads and notes when each chunk is due; an empty chunk is the end."""
    loop = asyncio.get_running_loop()
    while True:
        data = await reader.read(CHUNK)
        await chunks.put((loop.time() + fault.delay_s, data))
        if not data:
            return


async def _write(writer: asyncio.StreamWriter, data: bytes, fault: _Fault) -> None:
    """Writes at the rate in force, which may change meanwhile, in pieces of a fiftieth of a second."""
    while data:
        rate = fault.bytes_per_s
        size = len(data) if rate is None else max(1, int(rate / 50))
        piece, data = data[:size], data[size:]
        writer.write(piece)
        await writer.drain()
        if rate is not None:
            await asyncio.sleep(len(piece) / rate)
