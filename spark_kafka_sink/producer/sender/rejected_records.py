"""Single records that a broker will not have, and because of which it refused their batch (KIP-467): which, and why."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.producer.accumulator.producer_batch import SealedBatch
from spark_kafka_sink.producer.sender.error_policy import ADVICE
from spark_kafka_sink.protocol.error_codes import error_facts
from spark_kafka_sink.protocol.produce import PartitionProduceResponse


def rejected(batch: SealedBatch, answer: PartitionProduceResponse) -> Mapping[int, BrokerError]:
    """The records of the batch (counted from 0, ascending) that the answer names, each with its own error; those that are not
    in the batch are passed over."""
    said = {named.batch_index: named.batch_index_error_message for named in answer.record_errors}
    rows = sorted(row for row in said if 0 <= row < batch.record_count)
    return {row: _error(batch, answer, said[row]) for row in rows}


def others(batch: SealedBatch, rows: Mapping[int, BrokerError]) -> NDArray[np.intp]:
    """The records of the batch but for these."""
    return np.setdiff1d(np.arange(batch.record_count), list(rows), assume_unique=True)


def _error(batch: SealedBatch, answer: PartitionProduceResponse, message: str | None) -> BrokerError:
    queue, code = batch.queue, answer.error_code
    name = error_facts(code).name
    why = message or answer.error_message or "the broker gave no reason"
    text = f"topic {queue.topic} partition {queue.partition}: the record was refused: {name}: {why}"
    advice = f"; {ADVICE[code]}" if code in ADVICE else ""
    return BrokerError(text + advice, topic=queue.topic, partition=queue.partition, error_code=code, error=name)
