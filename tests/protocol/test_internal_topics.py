"""The records of the internal topics and the markers of transactions are those that Java writes."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.log.batch import EndTransactionMarker, parse_marker
from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError, UsageError
from spark_kafka_sink.protocol.internal_topics import (
    GROUP_METADATA_KEY,
    GROUP_METADATA_VALUE,
    OFFSET_COMMIT_KEY,
    OFFSET_COMMIT_VALUE,
    TRANSACTION_LOG_VALUE,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_group_key,
)
from spark_kafka_sink.records.small_batches import ABORT, COMMIT
from tests.every import every
from tests.protocol.golden_records import RECORDS, GoldenRecord, golden_markers, golden_records


@every("golden", golden_records())
def test_we_write_javas_bytes(golden: GoldenRecord) -> None:
    assert golden.record.encode(golden.body(), golden.version).hex() == golden.data.hex()


@every("golden", golden_records())
def test_we_read_javas_bytes(golden: GoldenRecord) -> None:
    assert golden.record.decode(golden.data) == golden.body()


def test_our_versions_are_javas_for_every_record() -> None:
    ours = {(name, version) for name, record in RECORDS.items() for version in range(record.max_version + 1)}

    assert {(golden.name, golden.version) for golden in golden_records()} == ours


@every("golden", golden_records())
def test_a_record_cut_anywhere_is_refused(golden: GoldenRecord) -> None:
    for size in range(len(golden.data)):
        with pytest.raises(ProtocolError):
            golden.record.decode(golden.data[:size])


@every("golden", golden_records())
def test_bytes_behind_a_record_are_refused(golden: GoldenRecord) -> None:
    with pytest.raises(ProtocolError, match=rf"it ends at byte {len(golden.data)}"):
        golden.record.decode(golden.data + b"\0")


@pytest.mark.parametrize(("name", "constant"), [("ABORT", ABORT), ("COMMIT", COMMIT)])
def test_markers_are_javas(name: str, constant: bytes) -> None:
    golden = golden_markers()
    marker = EndTransactionMarker(1, 2, name == "COMMIT", 70_000)

    assert (marker.key(), marker.value()) == (golden[name, "key"], golden[name, "value"])
    assert parse_marker(1, 2, golden[name, "key"], golden[name, "value"]) == marker
    assert constant == golden[name, "key"]


class TestGroupKeys:
    @pytest.mark.parametrize(("key_type", "partition"), [(0, 5), (1, 6)])
    def test_of_offsets_have_two_types_of_the_same_fields(self, key_type: int, partition: int) -> None:
        data = bytearray(OFFSET_COMMIT_KEY.encode(OffsetCommitKey("g", "t", partition)))
        data[1] = key_type

        assert decode_group_key(data) == OffsetCommitKey("g", "t", partition)

    def test_of_groups_are_told_apart(self) -> None:
        assert decode_group_key(GROUP_METADATA_KEY.encode(GroupMetadataKey("g"))) == GroupMetadataKey("g")

    @pytest.mark.parametrize("key_type", [3, 5, 32_767, -1])
    def test_of_newer_group_protocols_are_refused(self, key_type: int) -> None:
        with pytest.raises(UnsupportedVersionError, match=f"a key of type {key_type} is not supported"):
            decode_group_key(key_type.to_bytes(2, "big", signed=True) + b"what follows is not read")

    def test_are_not_read_as_another_record(self) -> None:
        with pytest.raises(UnsupportedVersionError, match="the key has type 2 instead of 1"):
            OFFSET_COMMIT_KEY.decode(GROUP_METADATA_KEY.encode(GroupMetadataKey("g")))


class TestValues:
    def test_are_written_in_the_versions_of_kafka_4_1(self) -> None:
        assert OFFSET_COMMIT_VALUE.encode(OffsetCommitValue(7))[:2] == b"\0\4"
        assert GROUP_METADATA_VALUE.encode(GroupMetadataValue("consumer", 1, None, None))[:2] == b"\0\3"

    @pytest.mark.parametrize("version", [-1, 2])
    def test_of_an_unknown_version_are_refused(self, version: int) -> None:
        with pytest.raises(UnsupportedVersionError, match=f"TransactionLogValue v{version} is not supported"):
            TRANSACTION_LOG_VALUE.decode(version.to_bytes(2, "big", signed=True) + bytes(40))

    def test_that_do_not_fit_are_named_with_their_field(self) -> None:
        with pytest.raises(UsageError, match="OffsetCommitValue v4 cannot be encoded: offset: "):
            OFFSET_COMMIT_VALUE.encode(OffsetCommitValue(1 << 63))
