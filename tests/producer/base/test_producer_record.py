"""Plain values that a user makes and gets."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from spark_kafka_sink.client.cluster import Node
from spark_kafka_sink.producer.base.producer_record import PartitionInfo, ProducerRecord, RecordMetadata, not_stored


def test_a_record_is_made_anew_where_an_interceptor_wants_another() -> None:
    record = ProducerRecord("t", b"v", b"k", 1, 5, (("h", b"1"),))
    other = dataclasses.replace(record, topic="u")
    assert (other.topic, other.value, other.headers) == ("u", b"v", (("h", b"1"),))
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.topic = "v"  # type: ignore[misc]  # that is what is tested


def test_only_the_topic_is_needed() -> None:
    assert ProducerRecord("t") == ProducerRecord("t", None, None, None, None, ())


def test_metadata_of_a_record_that_is_nowhere_say_so() -> None:
    assert not_stored("t", 2, 3, 4) == RecordMetadata("t", 2, -1, -1, 3, 4)
    assert not not_stored("t").has_offset
    assert RecordMetadata("t", 0, 0, 5, -1, 1).has_offset


@pytest.mark.parametrize("value", [RecordMetadata("t", 0, 1, 2, 3, 4), PartitionInfo("t", 0, Node(1, "h", 9092))])
def test_they_pickle(value: object) -> None:
    assert pickle.loads(pickle.dumps(value)) == value
