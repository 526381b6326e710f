"""What topics tell about transactions whose coordinators no longer know how they ended."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import DeadlineError
from spark_kafka_sink.exactly_once import partition_reader
from spark_kafka_sink.exactly_once.markers import look_for_markers
from spark_kafka_sink.exactly_once.partition_reader import PartitionReader
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.records.small_batch import NewRecord
from tests.exactly_once.opened import new_id, opened, soon, writer
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.waiting import until, wait_until

DAY_MS = 86_400_000


@pytest.fixture
def topic(transaction_kafka: Kafka, new_topic: NewTopic) -> str:
    return new_topic(on=transaction_kafka)


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("age_ms", [400 * DAY_MS, -DAY_MS // 48])
def test_whatever_the_timestamps_of_rows_a_marker_tells_how_their_transaction_ended(
    client: ClusterClient, topic: str, commits: bool, age_ms: int
) -> None:
    transactions = TransactionClient(client)
    made = writer(client, topic, new_id())
    made.append([NewRecord(None, b"row", now_ms() - age_ms)], soon())
    handle = made.handle()
    transactions.end([handle], commits, soon())
    expected = Outcome.COMMITTED if commits else Outcome.ABORTED

    def found() -> Outcome:
        return look_for_markers(client, [handle], now_ms(), soon())[0][handle]

    until(found, lambda outcome: outcome is expected, "the marker")


def test_transactions_are_told_apart_and_one_that_is_open_is_unknown(client: ClusterClient, topic: str) -> None:
    transactions = TransactionClient(client)
    first, second, third = (opened(client, topic, "row") for _ in range(3))
    transactions.end([first], True, soon())
    transactions.end([second], False, soon())

    def found() -> list[Outcome]:
        return list(look_for_markers(client, [first, second, third], now_ms(), soon())[0].values())

    until(found, lambda it: it == [Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN], "the markers")
    transactions.end([third], False, soon())


def test_before_its_batch_was_prepared_nothing_is_read(client: ClusterClient, topic: str) -> None:
    """Else one partition with years of records would have to be read."""
    transactions = TransactionClient(client)
    handle = opened(client, topic, "row")
    transactions.end([handle], False, soon())
    until(
        lambda: look_for_markers(client, [handle], now_ms(), soon())[0][handle],
        lambda outcome: outcome is Outcome.ABORTED,
        "the marker",
    )
    outcomes, reasons = look_for_markers(client, [handle], now_ms() + DAY_MS, soon())

    assert outcomes == {handle: Outcome.UNKNOWN}
    assert reasons[0].startswith(f"topic {topic}, partition 0 has no marker of {handle.transactional_id} since ")


def test_of_many_partitions_without_markers_some_are_named(client: ClusterClient, topic: str) -> None:
    transactions = TransactionClient(client)
    handle = opened(client, topic, "row")
    _, reasons = look_for_markers(client, [replace(handle, partitions=((topic, "0-14"),))], now_ms(), soon())

    assert reasons[1:] == [*(f"topic {topic} has no partition {number}" for number in range(1, 10)), "and 5 more"]
    transactions.end([handle], False, soon())


def test_one_that_runs_out_of_time_says_to_raise_it_and_takes_nothing_for_proved(
    transaction_kafka: Kafka, new_topic: NewTopic, client: ClusterClient
) -> None:
    topic = new_topic(2, on=transaction_kafka)
    handle = opened(client, topic, "row")
    TransactionClient(client).end([handle], False, soon())
    in_both = replace(handle, partitions=((topic, "0-1"),))
    outcomes, reasons = look_for_markers(client, [in_both], now_ms(), time.monotonic())

    assert outcomes == {in_both: Outcome.UNKNOWN}
    (reason,) = reasons
    assert reason.startswith("the time was too short to look for markers: raise --timeout (")


def test_a_partition_that_takes_too_long_says_how_far_it_was_read(
    client: ClusterClient, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_reader, "_FETCH_BYTES", 1)
    transactions = TransactionClient(client)
    handles = [opened(client, topic, "row") for _ in range(2)]
    for each in handles:
        transactions.end([each], False, soon())
    wait_until(lambda: len(list(PartitionReader(client, topic, 0).markers(0, soon()))) == len(handles))
    deadline = soon(1.0)
    found = PartitionReader(client, topic, 0).markers(0, deadline)
    next(found)
    wait_until(lambda: time.monotonic() > deadline)
    with pytest.raises(DeadlineError, match=f"^\\[DEADLINE\\] {topic}-0 was read up to offset 3 of 4$"):
        next(found)
