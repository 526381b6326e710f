"""An append that waits for memory compresses its own batches, which frees memory."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import BufferExhaustedError
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.recording_broker import RecordingBroker
from tests.kafka.witness import read_topic

ROWS = 8_000
COLUMNS = RecordColumns(ROWS, value=pa.array([b"%06d" % number + b"x" * 994 for number in range(ROWS)]))  # 8 MB


@pytest.fixture
def broker() -> Iterator[RecordingBroker]:
    with RecordingBroker() as cluster:
        cluster.topic("t", [1])
        yield cluster


def settings(broker: RecordingBroker, codec: str) -> dict[str, object]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "buffer.memory": 2 * 2**20,
        "batch.size": 2**17,
        "max.block.ms": 2_000,
        "compression.type": codec,
    }


def test_more_rows_than_the_memory_holds_are_buffered_while_the_broker_is_silent(broker: RecordingBroker) -> None:
    held = broker.faults.hold(ApiKey.PRODUCE)
    with Producer(settings(broker, "zstd")) as producer, producer.scope() as scope:
        scope.append("t", COLUMNS)
        held.remove()
        scope.flush(30)
        assert scope.report().records == ROWS
    read = [record.value for record in read_topic(broker.bootstrap_servers, "t")]
    assert COLUMNS.value is not None
    assert read == COLUMNS.value.to_pylist()


def test_without_a_codec_the_append_fails(broker: RecordingBroker) -> None:
    held = broker.faults.hold(ApiKey.PRODUCE)
    with Producer(settings(broker, "none")) as producer, producer.scope() as scope:
        with pytest.raises(BufferExhaustedError):
            scope.append("t", COLUMNS)
        held.remove()
