"""A user's own partitioner over columns or single records: what it is given, and what happens when its answers are wrong."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from spark_kafka_sink.client.cluster import Cluster
from spark_kafka_sink.errors import RecordError
from spark_kafka_sink.producer.partitioners.partitioner_table import partitioner_of
from spark_kafka_sink.records.columns import NO_PARTITION, RecordColumns
from tests.every import every
from tests.producer.partitioners.asking import TOPIC, ask, available, config

HERE = __name__


class ByColumn:
    """What `answer` makes of the columns."""

    def __init__(self, answer: Callable[[RecordColumns], Any]) -> None:
        self.answer = answer
        self.seen: list[tuple[str, RecordColumns, list[int], int | None]] = []

    def partition(self, topic: str, columns: RecordColumns, sizes: Any, cluster: Cluster) -> Any:
        self.seen.append((topic, columns, sizes.tolist(), cluster.partition_count(topic)))
        return self.answer(columns)


class ByRecord:
    def __init__(self, answer: Callable[[bytes | None, bytes | None], Any]) -> None:
        self.answer = answer

    def partition_record(self, topic: str, key: bytes | None, value: bytes | None, cluster: Cluster) -> Any:
        assert (topic, cluster.partition_count(topic)) == (TOPIC, 4)
        return self.answer(key, value)


class LastByColumn:
    """With everything that a partitioner may have; named by its dotted name."""

    made: LastByColumn
    settings: Mapping[str, object]

    def __init__(self) -> None:
        self.closed = 0
        LastByColumn.made = self

    def configure(self, settings: Mapping[str, object]) -> None:
        self.settings = settings

    def partition(self, topic: str, columns: RecordColumns, sizes: Any, cluster: Cluster) -> Any:
        return np.full(columns.num_records, (cluster.partition_count(topic) or 0) - 1, np.int32)

    def close(self) -> None:
        self.closed += 1


class Unclosable(LastByColumn):
    def close(self) -> None:
        super().close()
        raise OSError("still in use")


def chosen_by(by: object, columns: RecordColumns | int) -> list[int]:
    return ask(partitioner_of(config(partitioner_class=by)), columns, available(4))


@pytest.mark.parametrize("by", [f"{HERE}.LastByColumn", LastByColumn, LastByColumn()])
def test_a_dotted_name_a_class_and_an_object_do(by: object) -> None:
    assert chosen_by(by, 3) == [3, 3, 3]


def test_it_is_configured_with_every_option_by_name() -> None:
    partitioner_of(config(partitioner_class=LastByColumn, client_id="me"))
    settings = LastByColumn.made.settings
    assert (settings["client.id"], settings["batch.size"]) == ("me", 512 * 1024)


def test_it_is_closed_once() -> None:
    by = partitioner_of(config(partitioner_class=LastByColumn))
    by.close()
    by.close()
    assert LastByColumn.made.closed == 1


def test_what_close_raises_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        partitioner_of(config(partitioner_class=Unclosable)).close()
    assert LastByColumn.made.closed == 1
    assert f"partitioner {HERE}.Unclosable: close failed" in caplog.text
    assert "still in use" in caplog.text


def test_columns_are_given_as_they_are() -> None:
    by = ByColumn(lambda columns: np.zeros(columns.num_records, np.int32))
    columns = RecordColumns(2, key=pa.array([b"k", None]), value=pa.array(["v", "w"]))
    assert chosen_by(by, columns) == [0, 0]
    assert by.seen == [(TOPIC, columns, [100, 100], 4)]


def test_only_rows_that_name_no_partition_are_given() -> None:
    by = ByColumn(lambda columns: np.full(columns.num_records, 3, np.int32))
    headers = pa.array(
        [None, [{"key": "h", "value": b"1"}], []], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    )
    columns = RecordColumns(
        3,
        key=pa.array([b"a", b"b", None]),
        value=pa.array([b"1", b"2", b"3"]),
        headers=headers,
        timestamp=np.array([7, 8, 9]),
        partition=np.array([1, NO_PARTITION, NO_PARTITION], np.int32),
    )
    assert chosen_by(by, columns) == [1, 3, 3]
    ((_, given, _, _),) = by.seen
    assert (given.num_records, given.key, given.value) == (2, pa.array([b"b", None]), pa.array([b"2", b"3"]))
    assert given.headers == headers.slice(1)
    assert given.timestamp is not None
    assert given.timestamp.tolist() == [8, 9]


@pytest.mark.parametrize("dtype", [np.int8, np.uint16, np.int64])
def test_any_integers_do(dtype: Any) -> None:
    assert chosen_by(ByColumn(lambda columns: np.array([2, 1], dtype)), 2) == [2, 1]


@every(
    "answer, text",
    [
        ([0, 1, 2], "returned list, not a numpy array of int32"),
        (None, "returned NoneType, not a numpy array of int32"),
        (np.zeros(2, np.int32), r"returned shape \(2,\) for 3 rows, not \(3,\)"),
        (np.zeros((3, 1), np.int32), r"returned shape \(3, 1\) for 3 rows"),
        (np.zeros(3), "returned float64, not int32"),
        (np.array([True, False, True]), "returned bool, not int32"),
        (np.array([0, 4, -1], np.int32), "row 1 of 3: returned 4, but there are 4 partitions, 0 to 3"),
        (np.array([0, 1, -1], np.int32), "row 2 of 3: returned -1"),
        (np.array([2**40, 1, 1]), "row 0 of 3: returned 1099511627776"),
    ],
)
def test_a_wrong_answer_is_refused_with_the_partitioners_name(answer: object, text: str) -> None:
    with pytest.raises(RecordError, match=rf"topic {TOPIC}: partitioner {HERE}\.ByColumn: {text}") as caught:
        chosen_by(ByColumn(lambda columns: answer), 3)
    facts = pickle.loads(pickle.dumps(caught.value)).facts
    assert (facts["topic"], facts["partitioner"]) == (TOPIC, f"{HERE}.ByColumn")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (None, "row 0 of 2: returned None, not an int"),
        (1.0, r"row 0 of 2: returned 1\.0, not an int"),
        (-1, "row 0 of 2: returned -1, but there are 4 partitions, 0 to 3"),
        (10**30, "row 0 of 2: returned 10{30}, but"),
    ],
)
def test_a_wrong_answer_for_a_record_is_refused_too(answer: object, text: str) -> None:
    with pytest.raises(RecordError, match=rf"partitioner {HERE}\.ByRecord: {text}"):
        chosen_by(ByRecord(lambda key, value: answer), 2)


def test_what_it_raises_itself_is_told_with_its_name_and_row() -> None:
    def raising(columns: RecordColumns) -> Any:
        raise KeyError("shard")

    with pytest.raises(
        RecordError, match=rf"partitioner {HERE}\.ByRecord: row 0 of 1: partition_record failed: ZeroDivisionError"
    ):
        chosen_by(ByRecord(lambda key, value: 1 // 0), 1)
    with pytest.raises(RecordError, match=rf"partitioner {HERE}\.ByColumn: partition failed: KeyError: 'shard'"):
        chosen_by(ByColumn(raising), 1)
