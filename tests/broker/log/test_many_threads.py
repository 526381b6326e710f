"""Threads that append and threads that read have one log between them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from spark_kafka_sink.broker.log.log_config import LogConfig
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from tests.broker.log.logs import COMMITTED, NOW, batch, opened, stored, values

WRITERS, BATCHES = 4, 60


def test_every_append_is_there_once_and_readers_see_whole_batches(folder: Path | None) -> None:
    config = LogConfig(segment_bytes=2000, index_interval_bytes=200, retention_ms=-1)
    done = threading.Event()
    with opened(folder, config) as log, ThreadPoolExecutor(WRITERS + 4) as pool:
        readers = [pool.submit(_repeat, done, work) for work in _others(log)]
        writers = [pool.submit(_write, log, producer) for producer in range(WRITERS)]
        for writer in writers:
            assert writer.result(60) == BATCHES
        done.set()
        for reader in readers:
            reader.result(60)
        due = {b"%d-%d" % (producer, i) for producer in range(WRITERS) for i in range(BATCHES)}
        read = values(stored(log))
        assert (len(read), set(read)) == (len(due), due)
        for producer in range(WRITERS):  # each one's in its order
            own = [value for value in read if value is not None and value.startswith(b"%d-" % producer)]
            assert own == [b"%d-%d" % (producer, i) for i in range(BATCHES)]


def _write(log: UnifiedLog, producer: int) -> int:
    for i in range(BATCHES):
        log.append_as_leader(batch(b"%d-%d" % (producer, i), producer_id=producer, producer_epoch=0, base_sequence=i), i // 20)
    return BATCHES


def _others(log: UnifiedLog) -> list[Callable[[], object]]:
    return [
        lambda: values(stored(log, COMMITTED)),
        lambda: (log.fetch_offset_by_timestamp(NOW), log.active_producers(), log.last_stable_offset),
        lambda: log.enforce_retention(NOW),
        log.flush,
    ]


def _repeat(done: threading.Event, work: Callable[[], object]) -> None:
    while not done.is_set():
        work()
