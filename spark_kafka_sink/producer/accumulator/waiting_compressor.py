"""Compresses full batches in a task's thread while its append waits for memory.

Batches are compressed in the sender's thread, which is usually faster than the task. If the task has to wait, the sender is the
slower one, and compressing also frees memory. So the task takes the newest batches, which the sender would send last.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.producer.accumulator.producer_batch import OpenBatch, SealedBatch
from spark_kafka_sink.producer.accumulator.record_accumulator import RecordAccumulator
from spark_kafka_sink.producer.accumulator.tally import Tally
from spark_kafka_sink.records.compression import Codec, codec_of

logger = logging.getLogger(__name__)


class WaitingCompressor:
    """Stateless but for the settings, so threads do not contend here."""

    def __init__(self, config: ProducerConfig, accumulator: RecordAccumulator, wakeup: Callable[[], None]) -> None:
        self._codec = codec_of(config.compression_type)
        self._level = config.compression_level
        self._accumulator = accumulator
        self._pool = accumulator.pool
        self._wakeup = wakeup

    def work(self, tally: Tally, n_chunks: int, until: float) -> None:
        """Compresses batches of a scope until `n_chunks` are free, none is left to compress, or the time is `until`.

        The caller holds `tally.appending`, so that no discard takes these batches meanwhile.
        """
        if self._codec is Codec.NONE:
            return
        while self._pool.free_chunks < n_chunks and time.monotonic() < until:
            batch = self._accumulator.claim_newest(tally)
            if batch is None or not self._compress(batch):
                return

    def _compress(self, batch: OpenBatch) -> bool:
        """Returns whether it was compressed. If not, the sender will try again, and tell of the failure."""
        done = aborted = False
        try:
            sealed = SealedBatch(batch, self._codec, self._level)
            sealed.free_raw(self._pool)
            batch.memory, batch.sealed = sealed.memory, sealed
            done = True
        except Exception:
            logger.debug("a batch of %s could not be compressed by the task", batch.queue, exc_info=True)
        finally:
            aborted = self._accumulator.release(batch)
            self._wakeup()
        if aborted:  # the sender thread left it to this one (Delivery.fail_all)
            topic = batch.queue.topic
            batch.failed(UsageError(f"topic {topic}: the producer was closed or failed during the append", topic=topic))
            batch.memory.give_back(self._pool)
        return done and not aborted
