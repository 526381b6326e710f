"""Rejected records have the numbers that the caller of the append gives its rows, whatever happened to their batch."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from spark_kafka_sink.producer.base.bad_rows import BadRows
from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.small_batches import decode_batches
from tests.faults.producing import numbers, producer_on
from tests.faults.recording_broker import RecordingBroker, carries, says
from tests.faults.test_rejected_records import WIDTH, reject
from tests.producer.recording_interceptors import Recording
from tests.waiting import wait_until

E = ErrorCode
AFTER = 1_000_000  # added to a value's number, so that no position is taken for a number


def numbered(first: int) -> Callable[[NDArray[np.intp]], NDArray[np.int64]]:
    """Numbers of the rows of an append whose values are `first`, `first` + 1, and so on."""
    return lambda positions: positions + first + AFTER


def append(scope: SendScope, values: range, topic: str = "t", partitions: Iterable[int] | None = None, **more: Any) -> None:
    columns = numbers(values, width=WIDTH)
    if partitions is not None:
        columns = RecordColumns(len(values), columns.value, partition=np.fromiter(partitions, np.int32, len(values)))
    scope.append(topic, columns, row_numbers=numbered(values.start), **more)


def found_in(rejected: Iterable[BadRows]) -> dict[int, int | None]:
    """The number of each rejected record by its value."""
    found: dict[int, int | None] = {}
    for rows in rejected:
        assert rows.columns.value is not None
        known = [None] * rows.columns.num_records if rows.rows is None else rows.rows.tolist()
        found.update(zip(map(int, rows.columns.value.to_pylist()), known, strict=True))
    return found


def expected(bad: Iterable[int]) -> dict[int, int | None]:
    return {value: value + AFTER for value in bad}


def reject_each(cluster: RecordingBroker, bad: Collection[int]) -> None:
    """As `reject`, for requests of several partitions. Those without a bad record are to be sent again."""

    def of_partition(data: PartitionProduceData) -> PartitionProduceResponse:
        (batch,) = decode_batches(b"".join(data.records or ()))
        values = [int(record.value or b"") for record in batch.records()]
        errors = [BatchIndexAndErrorMessage(row, f"{value} is bad") for row, value in enumerate(values) if value in bad]
        return PartitionProduceResponse(
            data.index, E.INVALID_RECORD if errors else E.NOT_LEADER_OR_FOLLOWER, -1, record_errors=errors
        )

    def answer(body: ProduceRequest) -> ProduceResponse:
        return ProduceResponse(
            [
                TopicProduceResponse(each.name, each.topic_id, list(map(of_partition, each.partition_data)))
                for each in body.topic_data
            ]
        )

    cluster.faults.answer(ApiKey.PRODUCE, answer, times=None, when=carries(*bad))


def test_an_append_that_is_encoded_in_parts_and_rounds_counts_its_rows_through(cluster: RecordingBroker) -> None:
    """Rows are encoded 10,000 at once, and the memory for them comes in rounds."""
    cluster.topic(leaders=(1, 1))
    bad = {0, 9_999, 10_000, 10_001, 20_000, 24_999}
    reject_each(cluster, bad)
    with (
        producer_on(cluster.bootstrap_servers, buffer_memory=1 << 20, batch_size=50_000) as producer,
        producer.scope(keeps_rejected=True) as scope,
    ):
        append(scope, range(25_000), partitions=(row % 2 for row in range(25_000)))
        scope.flush(60)
        assert found_in(scope.take_rejected()) == expected(bad)


@pytest.mark.parametrize("limits", [{}, {"max_records_per_second": 400}], ids=["", "rate limit"])
def test_bad_rows_that_the_append_has_left_out_do_not_shift_the_numbers(
    cluster: RecordingBroker, limits: dict[str, object]
) -> None:
    bad = {0, 2, 69, 150, 151, 199}
    reject(cluster, bad)
    columns = numbers(range(200))
    refused: list[BadRows] = []
    partition = np.where(np.isin(np.arange(200), [1, 70, 71, 149]), 77, 0).astype(np.int32)
    with (
        producer_on(cluster.bootstrap_servers, linger_ms=60_000, max_block_ms=30_000, **limits) as producer,
        producer.scope(keeps_rejected=True) as scope,
    ):
        scope.append(
            "t", RecordColumns(200, columns.value, partition=partition), on_bad_rows=refused.append, row_numbers=numbered(0)
        )
        scope.flush(20)
        assert found_in(scope.take_rejected()) == expected(bad)
    assert [rows.rows.tolist() for rows in refused if rows.rows is not None] == [[1], [70], [71], [149]]  # positions


def test_a_batch_that_is_rejected_again_and_after_a_retry_keeps_its_numbers(cluster: RecordingBroker) -> None:
    """The broker finds one bad record at a time, and is not the leader for a moment in between."""
    bad = [20, 3, 11, 5]
    for value in bad:  # the first fault that matches answers
        cluster.faults.answer(ApiKey.PRODUCE, says(E.NOT_LEADER_OR_FOLLOWER), when=carries(value))
        reject(cluster, {value})
    with producer_on(cluster.bootstrap_servers, linger_ms=60_000) as producer, producer.scope(keeps_rejected=True) as scope:
        append(scope, range(15))
        append(scope, range(15, 30))
        scope.flush(20)
        assert found_in(scope.take_rejected()) == expected(bad)
        assert scope.report().retries == len(bad)


def test_rows_without_numbers_in_the_same_batch_have_none(cluster: RecordingBroker) -> None:
    """Such as dead letters, and the rows of a caller that does not number them. They come back apart from the others."""
    reject(cluster, {5, 6, 9, 10, 11, 19, 20, 25})
    with producer_on(cluster.bootstrap_servers, linger_ms=60_000) as producer, producer.scope(keeps_rejected=True) as scope:
        append(scope, range(10))
        scope.append_serialized("t", numbers(range(10, 20)))
        append(scope, range(20, 25))
        scope.append("t", numbers(range(25, 30)))
        scope.flush(20)
        found = found_in(scope.take_rejected())
    assert found == expected({5, 6, 9, 20}) | dict.fromkeys([10, 11, 19, 25])


class Reversed(ProducerInterceptor):
    def on_send_columns(self, topic: str, columns: RecordColumns) -> RecordColumns:
        assert columns.value is not None
        return RecordColumns(columns.num_records, columns.value.take(pa.array(range(columns.num_records - 1, -1, -1))))


@pytest.mark.parametrize("interceptor", [Reversed, Recording])
def test_numbers_are_unknown_only_where_an_interceptor_changes_the_columns(
    cluster: RecordingBroker, interceptor: type[ProducerInterceptor]
) -> None:
    reject(cluster, {3, 8})
    with (
        producer_on(cluster.bootstrap_servers, interceptor_classes=[interceptor()]) as producer,
        producer.scope(keeps_rejected=True) as scope,
    ):
        append(scope, range(10))
        scope.flush(20)
        found = found_in(scope.take_rejected())
    assert found == (dict.fromkeys([3, 8]) if interceptor is Reversed else expected({3, 8}))


def test_the_numbers_are_asked_for_rejected_records_only_and_freed_with_their_batches(cluster: RecordingBroker) -> None:
    asked: list[int] = []

    class Numbers:
        def __call__(self, positions: NDArray[np.intp]) -> NDArray[np.int64]:
            asked.extend(positions.tolist())
            return positions.astype(np.int64)

    reject(cluster, {17})
    with producer_on(cluster.bootstrap_servers) as producer, producer.scope(keeps_rejected=True) as scope:
        first, second = Numbers(), Numbers()
        alive = weakref.WeakSet([first, second])
        scope.append("t", numbers(range(10)), row_numbers=first)
        scope.append("t", numbers(range(10, 20)), row_numbers=second)
        scope.flush(20)
        assert asked == []
        assert list(found_in(scope.take_rejected()).items()) == [(17, 7)]
        assert asked == [7]
        del first, second
        wait_until(lambda: gc.collect() >= 0 and not alive, "nothing holds the numbers")


def test_a_scope_that_does_not_keep_rejected_records_takes_no_notice(cluster: RecordingBroker) -> None:
    def never(positions: NDArray[np.intp]) -> NDArray[np.int64]:
        raise AssertionError

    alive = weakref.ref(never)
    with producer_on(cluster.bootstrap_servers, linger_ms=60_000) as producer, producer.scope() as scope:
        scope.append("t", numbers(range(4)), row_numbers=never)
        del never
        assert alive() is None  # it is not even held while the records wait
        scope.flush(20)
