"""Reads a response that rejects records: which ones, why, and what to do if it does not say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from spark_kafka_sink.errors import BrokerError
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.producer.accumulator.producer_batch import SealedBatch
from spark_kafka_sink.producer.base.produce_reactions import ADVICE, Action
from spark_kafka_sink.protocol.apis.produce import PartitionProduceResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.records.timestamps import in_both_units

NO_REASON = "the broker gave no reason"


def keeps_rejected(batch: SealedBatch) -> bool:
    """Returns whether the batch's scope gets rejected records instead of failing."""
    tally = batch.tally
    return tally is not None and tally.keeps_rejected


def without_names(batch: SealedBatch) -> Action:
    """Returns the action for a batch with rejected records that the response does not name."""
    if batch.record_count == 1:
        return Action.REJECTED
    return Action.HALVE if keeps_rejected(batch) else Action.FAIL


def rejected(batch: SealedBatch, answer: PartitionProduceResponse) -> Mapping[int, BrokerError]:
    """Returns the batch's records that the response rejects, by ascending index with their errors. Indexes outside the batch are
    ignored.
    """
    said = {named.batch_index: named.batch_index_error_message for named in answer.record_errors}
    rows = sorted(row for row in said if 0 <= row < batch.record_count)
    return {row: record_error(batch, answer, said[row]) for row in rows}


def others(batch: SealedBatch, rows: Mapping[int, BrokerError]) -> NDArray[np.intp]:
    """Returns the indexes of the batch's other records."""
    return np.setdiff1d(np.arange(batch.record_count), list(rows), assume_unique=True)


def record_error(batch: SealedBatch, answer: PartitionProduceResponse, message: str | None) -> BrokerError:
    """Returns the error of one record. message: what the broker says about it."""
    queue, code = batch.queue, answer.error_code
    name = error_facts(code).name
    why = quoted(message or answer.error_message or NO_REASON)
    text = f"topic {queue.topic} partition {queue.partition}: the broker rejected the record: {name}: {why}"
    text = "; ".join([text, *advice(batch, code)])
    return BrokerError(text, topic=queue.topic, partition=queue.partition, error_code=code, error=name)


def advice(batch: SealedBatch, code: int) -> Iterator[str]:
    """Yields what to do about an error of records."""
    if code in ADVICE:
        yield ADVICE[code]
    if code == ErrorCode.INVALID_TIMESTAMP:
        both = in_both_units(batch.max_timestamp) or in_both_units(batch.first_timestamp)
        if both is not None:
            yield f"{both}; in Spark, a cast of a number to timestamp takes seconds: use timestamp_millis or timestamp_micros"
