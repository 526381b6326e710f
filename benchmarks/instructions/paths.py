"""The counted paths. Each one is prepared and run several times before the run that counts.

The input is the same in every run. One thread runs everything, including the rounds of the sender. The broker is
the embedded one, in another process.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import md5
from types import MappingProxyType, SimpleNamespace
from typing import Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from spark_kafka_sink.client.network_client import NetworkClient
from spark_kafka_sink.network.channel import Address, Buffer, PlainChannel
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.producer import producer as producer_module
from spark_kafka_sink.producer.accumulator.append_plan import group
from spark_kafka_sink.producer.base import lifecycle as lifecycle_module
from spark_kafka_sink.producer.partitioners.key_hash import murmur2
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.encoder import encode_records
from tests.producer.simulation.stepped_producer import SteppedThread

TOPIC: Final = "counted"
PARTITIONS: Final = 8
# Keys have 10 bytes and values 100, so an append fills one request of 0.94 MB.
ROWS: Final = 8_000
ANSWER_S: Final = 60.0
# No window of the metrics ends during a run.
WINDOW_MS: Final = 3_600_000
# CPython rewrites a function's bytecode for the types that it meets in its first calls, of which it waits for eight.
WARM_UPS: Final = 10

Measure = Callable[[str, Callable[[], object]], None]
"""Counts the instructions of one call. The first argument is the name of its path."""


class AnsweredChannel(PlainChannel):
    """A plain connection whose `send` takes all bytes and returns when the answer arrives.

    So each round of the sender has one write and one answer. Otherwise the speed of the broker would decide how many it has.
    """

    def send(self, buffers: Sequence[Buffer]) -> int:
        self._socket.settimeout(ANSWER_S)
        try:
            sent = self._socket.sendmsg(buffers)
        finally:
            self._socket.setblocking(False)
        if not select.select([self._socket], [], [], ANSWER_S)[0]:
            raise TimeoutError(f"the broker did not answer within {ANSWER_S:.0f} s")
        return sent


def _open_channel(address: Address, *, host: str, port: int, send_buffer: int, receive_buffer: int) -> AnsweredChannel:
    return AnsweredChannel.connect(address, send_buffer=send_buffer, receive_buffer=receive_buffer)


class TurnedProducer:
    """A producer without a sender thread. The caller runs the sender's rounds one by one."""

    def __init__(self, servers: str, settings: Mapping[str, object] = MappingProxyType({})) -> None:
        threads = SimpleNamespace(Thread=self._made_thread, get_ident=threading.get_ident, Lock=threading.Lock)
        with (
            patch.object(lifecycle_module, "threading", threads),
            patch.object(producer_module, "NetworkClient", partial(NetworkClient, open_channel=_open_channel)),
        ):
            fixed = {"bootstrap.servers": servers, "linger.ms": 0, "metrics.sample.window.ms": WINDOW_MS}
            self.producer = Producer({**fixed, **settings})

    def _made_thread(self, target: Callable[[], None], name: str, daemon: bool) -> SteppedThread:
        self._thread = SteppedThread(target, name, daemon)
        return self._thread

    def round(self) -> None:
        """Runs one round of the sender."""
        with self._thread.turn():
            self.producer._sender.run_once(monotonic_ms())

    def find(self, topic: str) -> None:
        """Runs rounds until the topic's partitions are known. An append would wait for them forever."""
        metadata = self.producer._metadata
        metadata.add(topic, monotonic_ms())
        metadata.request_update()
        while metadata.fetch().partition_count(topic) is None:
            self.round()

    def empty(self) -> None:
        """Runs rounds until all records are acknowledged."""
        while self.producer.unfinished():
            self.round()


def _digits(row: int, size: int) -> bytes:
    """Returns `size` hexadecimal digits that depend on the row."""
    return (md5(b"%d" % row, usedforsecurity=False).hexdigest().encode() * (size // 32 + 1))[:size]


def _constant_columns() -> RecordColumns:
    """Returns rows with keys of 10 bytes and values of 100."""
    keys = pa.array([_digits(row, 10) for row in range(ROWS)], pa.binary())
    return RecordColumns(ROWS, pa.array([_digits(row, 100) for row in range(ROWS)], pa.binary()), keys)


def _varying_columns() -> RecordColumns:
    """Returns rows with keys of 0 to 40 bytes, values of 0 to 200, some nulls, up to 3 headers, and unordered timestamps."""
    rows = range(ROWS)
    keys = pa.array([None if row % 13 == 0 else _digits(row, row * 7 % 41) for row in rows], pa.binary())
    values = pa.array([None if row % 17 == 0 else _digits(row, row * 31 % 201) for row in rows], pa.binary())
    headers = pa.array(
        [[{"key": f"h{n}", "value": _digits(row + n, n * 5)} for n in range(row % 4)] for row in rows],
        pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    )
    timestamps = np.int64(1_700_000_000_000) + np.arange(ROWS, dtype=np.int64) * 7919 % 1000
    return RecordColumns(ROWS, values, keys, headers=headers, timestamp=timestamps)


def measure_all(servers: str, measure: Measure) -> None:
    """Prepares each path and has it measured.

    Args:
        servers: address of a broker that has the topic TOPIC with PARTITIONS partitions.
        measure: called once for each path.
    """
    constant, varying = _constant_columns(), _varying_columns()
    partitions = (murmur2(constant.key) & np.int32(0x7FFFFFFF)) % np.int32(PARTITIONS)
    order = group(partitions, PARTITIONS).order
    deltas = np.arange(ROWS, dtype=np.int32)
    assert varying.timestamp is not None
    times = varying.timestamp - varying.timestamp.min()
    # A new copy of the columns has none of the sizes that an earlier call has cached.
    _warm(measure, "encode constant sizes", lambda: partial(encode_records, replace(constant), order, deltas, None))
    _warm(measure, "encode varying sizes, headers", lambda: partial(encode_records, replace(varying), order, deltas, times))
    _warm(measure, "hash keys of one size", lambda: partial(murmur2, constant.key))
    _warm(measure, "hash keys of varying sizes", lambda: partial(murmur2, varying.key))
    _warm(measure, "group by partition", lambda: partial(group, partitions, PARTITIONS))
    _measure_producer(servers, constant, measure)


def _measure_producer(servers: str, columns: RecordColumns, measure: Measure) -> None:
    turned = TurnedProducer(servers)
    try:
        turned.find(TOPIC)
        with turned.producer.scope() as scope:
            for _ in range(WARM_UPS):
                scope.append(TOPIC, replace(columns))
                turned.empty()
            measure("append", partial(scope.append, TOPIC, replace(columns)))
            measure("sender round", turned.round)
            if unfinished := turned.producer.unfinished():
                raise RuntimeError(f"{unfinished:,} of {ROWS:,} records were not acknowledged after one round of the sender")
    finally:
        turned.producer.close(ANSWER_S)


def _warm(measure: Measure, name: str, prepared: Callable[[], Callable[[], object]]) -> None:
    """Has the next call measured after WARM_UPS calls. `prepared` makes each call, which is not counted."""
    for _ in range(WARM_UPS):
        prepared()()
    measure(name, prepared())
