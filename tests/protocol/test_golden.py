"""What Java's own classes wrote is what we write, and we read it back."""

from __future__ import annotations

from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.messages import decode_request
from tests.every import every
from tests.protocol.golden_messages import CLIENT_ID, CORRELATION_ID, Golden, golden_messages
from tests.protocol.whole import decode, encode


@every("golden", golden_messages())
def test_we_write_javas_bytes(golden: Golden) -> None:
    written = encode(golden.api, golden.version, golden.kind, CORRELATION_ID, CLIENT_ID, golden.message())

    assert written.hex() == golden.data.hex()


@every("golden", golden_messages())
def test_we_read_javas_bytes(golden: Golden) -> None:
    assert decode(golden.api, golden.version, golden.kind, golden.data) == (CORRELATION_ID, golden.message())


@every("golden", [golden for golden in golden_messages() if golden.kind == "request"])
def test_we_read_javas_request_headers(golden: Golden) -> None:
    header, _ = decode_request(golden.data, ALL_APIS)

    assert (header.api_key, header.api_version, header.client_id) == (golden.api.key, golden.version, CLIENT_ID)


def test_our_versions_are_javas_for_every_api() -> None:
    ours = {
        (api.key, version, kind)
        for api in ALL_APIS.values()
        for version in range(api.min_version, api.max_version + 1)
        for kind in ("request", "response")
    }

    assert {(golden.api.key, golden.version, golden.kind) for golden in golden_messages()} == ours
