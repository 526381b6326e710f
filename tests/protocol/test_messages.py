"""What a caller of messages.py can count on."""

from __future__ import annotations

from typing import Any

import pytest

from spark_kafka_sink.errors import ProtocolError, UnsupportedVersionError, UsageError
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.apis.fetch import FETCH, FetchableTopicResponse, FetchResponse, PartitionData
from spark_kafka_sink.protocol.apis.groups import HEARTBEAT, HeartbeatRequest
from spark_kafka_sink.protocol.apis.metadata import (
    API_VERSIONS,
    METADATA,
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    MetadataRequest,
    MetadataRequestTopic,
)
from spark_kafka_sink.protocol.apis.produce import (
    PRODUCE,
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from spark_kafka_sink.protocol.apis.sasl import SASL_AUTHENTICATE, SaslAuthenticateRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Buffer, Records
from spark_kafka_sink.protocol.messages import APIS, decode_request, decode_response, encode_request, encode_response


def produce_request(*records: Records | None) -> ProduceRequest:
    partitions = [PartitionProduceData(index, given) for index, given in enumerate(records)]
    return ProduceRequest(topic_data=[TopicProduceData("t", partition_data=partitions)])


class TestRecords:
    @pytest.mark.parametrize("version", [3, 9, 12])
    def test_go_out_as_the_very_buffers_given(self, version: int) -> None:
        given: list[Buffer] = [memoryview(bytearray(b"first")), b"second", bytearray(b"third")]

        buffers = encode_request(PRODUCE, version, 1, "c", produce_request(given[:2], given[2:]))

        small_parts = (0, 3, 5)
        assert [buffer for index, buffer in enumerate(buffers) if index not in small_parts] == given
        assert all(any(buffer is original for buffer in buffers) for original in given)

    def test_have_only_joined_small_parts_between_them(self) -> None:
        buffers = encode_request(PRODUCE, 9, 1, "c", produce_request(*[(b"x",)] * 1000))

        assert len(buffers) == 2001

    def test_of_several_buffers_are_read_as_one_view_of_the_data(self) -> None:
        data = bytearray(b"".join(encode_request(PRODUCE, 9, 1, "c", produce_request((b"ab", b"cd")))))

        _, request = decode_request(data)
        assert isinstance(request, ProduceRequest)
        (partition,) = request.topic_data[0].partition_data
        assert partition.records == (b"abcd",)
        data[data.index(b"abcd")] = ord("z")
        assert partition.records == (b"zbcd",)

    @pytest.mark.parametrize("version", [4, 18])
    def test_of_an_answer_go_out_as_the_very_buffers_of_each_partition(self, version: int) -> None:
        segments: list[Buffer] = [memoryview(bytearray(b"read")), memoryview(bytearray(b"of")), b"several files"]
        partitions = [PartitionData(0, 0, 9, records=segments[:2]), PartitionData(1, 0, 9, records=segments[2:])]

        buffers = encode_response(FETCH, version, 1, FetchResponse(responses=(FetchableTopicResponse(partitions=partitions),)))

        assert [index for index, buffer in enumerate(buffers) if any(buffer is given for given in segments)] == [1, 2, 4]
        _, read = decode_response(FETCH, version, b"".join(buffers))
        assert [partition.records for partition in read.responses[0].partitions] == [(b"readof",), (b"several files",)]

    @pytest.mark.parametrize("version", [3, 9])
    def test_may_be_null(self, version: int) -> None:
        _, request = decode_request(b"".join(encode_request(PRODUCE, version, 1, "c", produce_request(None))))

        assert isinstance(request, ProduceRequest)
        assert request.topic_data[0].partition_data[0].records is None


class TestApiVersions:
    def test_answers_have_no_tagged_fields_in_the_header_in_any_version(self) -> None:
        (data,) = encode_response(API_VERSIONS, 3, 7, ApiVersionsResponse(0))

        assert bytes(data[:6]) == b"\0\0\0\7\0\0"

    @pytest.mark.parametrize("asked", [1, 3, 4])
    def test_an_answer_in_v0_is_read_when_the_broker_does_not_know_the_version_asked(self, asked: int) -> None:
        answer = ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, (ApiVersion(18, 0, 2),))

        assert decode_response(API_VERSIONS, asked, b"".join(encode_response(API_VERSIONS, 0, 7, answer))) == (7, answer)

    def test_a_rejection_in_no_known_format_has_only_its_code_unless_v0_was_asked(self) -> None:
        """What librdkafka 2.16's mock cluster answers to v4, and to any version after v2."""
        rejection = bytes.fromhex("0000000e00230100120000000200000000")

        assert decode_response(API_VERSIONS, 4, rejection) == (14, ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION))
        with pytest.raises(ProtocolError):
            decode_response(API_VERSIONS, 0, rejection)

    def test_any_other_error_is_read_in_the_version_asked(self) -> None:
        answer = ApiVersionsResponse(ErrorCode.INVALID_REQUEST, throttle_time_ms=9)

        assert decode_response(API_VERSIONS, 3, b"".join(encode_response(API_VERSIONS, 3, 7, answer))) == (7, answer)


class TestVersions:
    def test_a_value_that_the_version_cannot_carry_is_not_dropped(self) -> None:
        with pytest.raises(UnsupportedVersionError, match=r"MetadataRequest v3 has no field allow_auto_topic_creation.*False"):
            encode_request(METADATA, 3, 1, "c", MetadataRequest((), allow_auto_topic_creation=False))

    def test_an_ignorable_value_is_left_out_where_the_version_lacks_it(self) -> None:
        encoded = encode_request(API_VERSIONS, 0, 1, "c", ApiVersionsRequest("sink", "1.0"))

        assert decode_request(b"".join(encoded))[1] == ApiVersionsRequest()

    @pytest.mark.parametrize("version", [-1, 2, 14, 32767])
    def test_that_are_not_spoken_are_refused_on_our_side(self, version: int) -> None:
        with pytest.raises(UnsupportedVersionError, match=f"PRODUCE v{version} is not supported; v3 to v13 are"):
            encode_request(PRODUCE, version, 1, "c", ProduceRequest())

    @pytest.mark.parametrize(("key", "version", "name"), [(0, 2, "PRODUCE v2"), (18, 6, "API_VERSIONS v6"), (1, 4, "API 1 v4")])
    def test_that_are_not_spoken_leave_the_broker_the_facts_to_answer(self, key: int, version: int, name: str) -> None:
        data = key.to_bytes(2, "big") + version.to_bytes(2, "big") + (99).to_bytes(4, "big") + b"what follows is not read"

        with pytest.raises(UnsupportedVersionError, match=name) as raised:
            decode_request(data)

        assert raised.value.facts == {"api_key": key, "version": version, "correlation_id": 99}


class TestServedApis:
    def test_a_broker_reads_the_apis_it_names(self) -> None:
        data = b"".join(encode_request(HEARTBEAT, 4, 7, "c", HeartbeatRequest("g", 1, "m")))

        assert decode_request(data, {HEARTBEAT.key: HEARTBEAT})[1] == HeartbeatRequest("g", 1, "m")
        with pytest.raises(UnsupportedVersionError, match="API 12 v4 is not supported"):
            decode_request(data)

    def test_a_limited_api_has_none_but_its_versions(self) -> None:
        limited = HEARTBEAT.limited_to(2, 3)
        spoken = [version for version in range(6) if limited.has_version(version)]

        assert spoken == [2, 3]
        data = b"".join(encode_request(HEARTBEAT, 4, 7, "c", HeartbeatRequest("g", 1, "m")))
        with pytest.raises(UnsupportedVersionError, match="HEARTBEAT v4 is not supported") as raised:
            decode_request(data, {limited.key: limited})
        assert raised.value.facts == {"api_key": 12, "version": 4, "correlation_id": 7}

    def test_a_limited_api_gets_no_versions_that_are_not_declared(self) -> None:
        assert HEARTBEAT.limited_to(-1, 99) == HEARTBEAT

    def test_the_table_of_all_has_the_producers_too(self) -> None:
        assert APIS.items() <= ALL_APIS.items()


class TestBytes:
    def test_are_read_as_a_copy_that_outlives_the_message(self) -> None:
        request = SaslAuthenticateRequest(b"token")
        data = bytearray(b"".join(encode_request(SASL_AUTHENTICATE, 2, 1, "c", request)))

        _, read = decode_request(data, ALL_APIS)
        data[data.index(b"token")] = 0

        assert read == request

    def test_are_not_null_where_a_value_must_be(self) -> None:
        nothing: Any = SaslAuthenticateRequest(None)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="auth_bytes: None is not valid for bytes"):
            encode_request(SASL_AUTHENTICATE, 2, 1, "c", nothing)
        data = b"".join(encode_request(SASL_AUTHENTICATE, 1, 1, "c", SaslAuthenticateRequest(b"")))
        with pytest.raises(ProtocolError, match="auth_bytes: null is not valid for bytes"):
            decode_request(data[:-4] + b"\xff\xff\xff\xff", ALL_APIS)


class TestUnwritable:
    @pytest.mark.parametrize(
        ("request_", "complaint"),
        [
            (ProduceRequest(acks=1 << 15), "acks: "),
            (ProduceRequest(timeout_ms=1 << 31), "timeout_ms: "),
            (ProduceRequest(transactional_id="\ud800"), "transactional_id: cannot be encoded as UTF-8"),
        ],
        ids=["int16", "int32", "surrogate"],
    )
    def test_a_value_that_does_not_fit_is_named_with_its_field(self, request_: ProduceRequest, complaint: str) -> None:
        with pytest.raises(UsageError, match=f"PRODUCE v9 request cannot be encoded: {complaint}"):
            encode_request(PRODUCE, 9, 1, "c", request_)

    def test_none_where_a_value_must_be_is_named_with_its_path(self) -> None:
        with pytest.raises(UsageError, match=r"topics\.name: None is not a valid string"):
            encode_request(METADATA, 9, 1, "c", MetadataRequest((MetadataRequestTopic(name=None),)))

    def test_a_string_over_the_limit_of_an_int16_length_is_named(self) -> None:
        too_long = ProduceRequest(transactional_id="x" * 32_768)

        with pytest.raises(UsageError, match="transactional_id: the length 32,768 exceeds the limit of 32,767"):
            encode_request(PRODUCE, 8, 1, "c", too_long)
        assert decode_request(b"".join(encode_request(PRODUCE, 9, 1, "c", too_long)))[1] == too_long

    def test_the_client_id_has_that_limit_in_flexible_versions_too(self) -> None:
        with pytest.raises(UsageError, match=r"client_id: the length 40,000 exceeds the limit"):
            encode_request(PRODUCE, 9, 1, "x" * 40_000, ProduceRequest())


class TestUnknown:
    def test_leaders_of_a_newer_broker_are_passed_over_in_a_version_that_lacks_them(self) -> None:
        """Tag 0 of a partition is current_leader from v10 on; in v9 nobody has said so yet."""
        partition = PartitionProduceResponse(0, 6, -1)
        known = ProduceResponse((TopicProduceResponse("t", partition_responses=(partition,)),))
        encoded = bytearray(b"".join(encode_response(PRODUCE, 9, 1, known)))
        # Behind the partition's own count of tagged fields come those of the topic, the throttle time and the response's.
        at = len(encoded) - 7
        assert encoded[at:] == bytes(7)
        encoded[at : at + 1] = b"\1\0\3abc"

        assert decode_response(PRODUCE, 9, encoded) == (1, known)


def test_what_cannot_be_read_is_named_with_its_path() -> None:
    response = ProduceResponse((TopicProduceResponse("t", partition_responses=(PartitionProduceResponse(0, 6, -1),)),))
    data = bytearray(b"".join(encode_response(PRODUCE, 9, 1, response)))
    # Behind the error message stand three counts of tagged fields and the throttle time.
    data[-1 - 7] = 0x20

    complaint = r"48 bytes.*: responses\.partition_responses\.error_message: 31 bytes for a string, but only 7 are left"
    with pytest.raises(ProtocolError, match=complaint):
        decode_response(PRODUCE, 9, data)


class TestUsualForm:
    """A struct of numbers and then defaults is read at once."""

    @pytest.mark.parametrize("version", range(PRODUCE.min_version, PRODUCE.max_version + 1))
    def test_a_response_is_read_alike_whichever_fields_differ_from_it(self, version: int) -> None:
        usual = PartitionProduceResponse(1, 0, 2**40)
        others = [
            PartitionProduceResponse(2, 1, -1, log_append_time_ms=5),
            *(
                [PartitionProduceResponse(3, 87, -1, record_errors=(BatchIndexAndErrorMessage(4, "bad"),))]
                if version >= 8
                else []
            ),
            *([PartitionProduceResponse(4, 3, -1, error_message="")] if version >= 8 else []),
            *([PartitionProduceResponse(5, 6, -1, current_leader=LeaderIdAndEpoch(7, 8))] if version >= 10 else []),
        ]
        name = "t" if version <= 12 else ""
        body = ProduceResponse([TopicProduceResponse(name, partition_responses=(usual, *others, usual))])
        data = b"".join(encode_response(PRODUCE, version, 1, body))

        _, read = decode_response(PRODUCE, version, data)

        assert read.responses[0].partition_responses == (usual, *others, usual)
