"""kafka-python's admin client asks an embedded broker for offsets, groups, transactions and features."""

from __future__ import annotations

import time
import warnings
from contextlib import ExitStack
from typing import Any

import pytest

from tests.broker.compat import confluent, kafka_python
from tests.broker.compat.confluent import TIMEOUT_S
from tests.broker.compat.conftest import NewTopic

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import TopicPartition
    from kafka.admin import MemberToRemove, OffsetSpec, TransactionState
    from kafka.errors import NoError, UnknownMemberIdError
    from kafka.structs import OffsetAndMetadata

START_MS = 1_700_000_000_000


@pytest.fixture
def admin(servers: str, closing: ExitStack) -> Any:
    return kafka_python.admin(servers, closing)


@pytest.fixture
def places(servers: str, new_topic: NewTopic) -> list[Any]:
    """Two partitions of five records each, the third of each the newest."""
    name = new_topic(2)
    writer = confluent.producer(servers)
    for partition in (0, 1):
        for index, after_ms in enumerate((0, 1000, 9000, 2000, 3000)):
            writer.produce(name, str(index), partition=partition, timestamp=START_MS + after_ms)
    assert writer.flush(TIMEOUT_S) == 0
    return [TopicPartition(name, partition) for partition in (0, 1)]


@pytest.mark.parametrize(
    ("spec", "offset"),
    [
        (OffsetSpec.EARLIEST, 0),
        (OffsetSpec.LATEST, 5),
        (OffsetSpec.MAX_TIMESTAMP, 2),
        (OffsetSpec.EARLIEST_LOCAL, 0),
        (START_MS + 1500, 2),
        (START_MS + 9001, -1),
    ],
)
def test_offsets_of_every_kind(admin: Any, places: list[Any], spec: Any, offset: int) -> None:
    found = admin.list_partition_offsets(dict.fromkeys(places, spec))
    assert {place: each.offset for place, each in found.items()} == dict.fromkeys(places, offset)


def test_offsets_of_a_group_are_set_reset_and_deleted(admin: Any, places: list[Any], name: str) -> None:
    def offsets() -> dict[Any, int]:
        return {place: each.offset for place, each in admin.list_group_offsets(name)[name].items()}

    first, second = places
    asked = {first: OffsetAndMetadata(3, "text", -1), second: OffsetAndMetadata(4, "", -1)}
    assert admin.alter_group_offsets(name, asked) == {first: NoError, second: NoError}
    assert admin.list_group_offsets(name)[name] == asked
    admin.reset_group_offsets(name, {first: OffsetSpec.EARLIEST, second: OffsetSpec.LATEST})
    assert offsets() == {first: 0, second: 5}
    assert admin.delete_group_offsets(name, [first]) == {first: NoError}
    assert offsets() == {second: 5}
    assert admin.delete_groups([name]) == {name: "OK"}
    assert name not in {group["group_id"] for group in admin.list_groups()}


def test_a_running_group_is_described_and_its_members_removed(
    servers: str, admin: Any, places: list[Any], name: str, closing: ExitStack
) -> None:
    topic = places[0].topic
    member = kafka_python.consumer(
        servers, closing, topic, group_id=name, group_instance_id="static", heartbeat_interval_ms=200, client_id="reader"
    )
    next(member)
    described = admin.describe_groups([name])[name]
    (only,) = described["members"]
    assert (described["group_state"], described["protocol_data"], described["protocol_type"]) == ("Stable", "range", "consumer")
    assert (only["group_instance_id"], only["client_host"]) == ("static", "/127.0.0.1")
    assert [group["group_state"] for group in admin.list_groups() if group["group_id"] == name] == ["Stable"]
    refused = admin.alter_group_offsets(name, {places[0]: OffsetAndMetadata(0, "", -1)})
    assert refused == {places[0]: UnknownMemberIdError}
    assert admin.delete_groups([name]) == {name: "NonEmptyGroupError"}

    admin.remove_group_members(name, [MemberToRemove(group_instance_id="static")])
    assert admin.describe_groups([name])[name]["group_state"] == "Empty"


def test_transactions_and_their_producers_are_described(servers: str, admin: Any, places: list[Any], name: str) -> None:
    first = places[0]
    writer = confluent.producer(servers, transactional_id=name, transaction_timeout_ms=50_000)
    writer.init_transactions(TIMEOUT_S)
    writer.begin_transaction()
    before_ms = int(time.time() * 1000)
    writer.produce(first.topic, "value", partition=0)
    assert writer.flush(TIMEOUT_S) == 0

    (listed,) = [each for of_broker in admin.list_transactions().values() for each in of_broker if each.transactional_id == name]
    described = admin.describe_transactions([name])[name]
    producers = admin.describe_producers([first])[first].active_producers
    (producing,) = [each for each in producers if each.producer_id == described.producer_id]
    assert (listed.producer_id, listed.state) == (described.producer_id, TransactionState.ONGOING)
    assert (described.transaction_timeout_ms, described.topic_partitions) == (50_000, {first})
    assert before_ms <= described.transaction_start_time_ms <= time.time() * 1000
    assert producing.current_transaction_start_offset == 5
    writer.abort_transaction(TIMEOUT_S)
    assert not admin.describe_transactions([name])[name].topic_partitions


def test_features_are_those_of_kafka_4_1(admin: Any) -> None:
    found = admin.describe_features()
    assert found["transaction.version"]["finalized"] == (2, 2)
    assert found["metadata.version"]["supported"] == (7, 27)


def test_folders_are_described(admin: Any, places: list[Any]) -> None:
    (found,) = admin.describe_log_dirs(None)  # of all topics
    (folder,) = found["log_dirs"]
    partitions = {topic["name"]: topic["partitions"] for topic in folder["topics"]}[places[0].topic]
    assert [(each["partition_index"], each["partition_size"] > 0) for each in partitions] == [(0, True), (1, True)]
    assert 0 < folder["usable_bytes"] <= folder["total_bytes"]
