"""A request out of a frame, or why its connection has to be closed (RequestContext.parseRequest)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.errors import UnsupportedVersionError
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.api_versions import API_VERSIONS, ApiVersionsRequest
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import RequestHeader, decode_request
from spark_kafka_sink.protocol.sasl import SASL_AUTHENTICATE, SaslAuthenticateRequest


@dataclass(frozen=True, slots=True)
class DecodedRequest:
    """`version`: that of the answer."""

    header: RequestHeader
    body: Message
    api: AnyApi
    version: int


def bare_sasl_token(frame: memoryview) -> DecodedRequest:
    """What comes after a SaslHandshake v0 has no header; it is served as a SaslAuthenticate."""
    return DecodedRequest(
        RequestHeader(SASL_AUTHENTICATE.key, 0, 0, None), SaslAuthenticateRequest(bytes(frame)), SASL_AUTHENTICATE, 0
    )


def decode(frame: memoryview, served: Mapping[int, AnyApi]) -> DecodedRequest:
    """Raises PeerError for bytes that are no request and for one of an API or version that is not `served`.

    ApiVersions of any version is served: one that is not known is taken for v0 and not read further, because a client asks in
    its newest version before it can know ours (KIP-511).
    """
    try:
        header, body = decode_request(frame, served)
    except UnsupportedVersionError as error:
        if error.facts["api_key"] != ApiKey.API_VERSIONS:
            raise
        header = RequestHeader(error.facts["api_key"], error.facts["version"], error.facts["correlation_id"], None)
        return DecodedRequest(header, ApiVersionsRequest(), API_VERSIONS, 0)
    return DecodedRequest(header, body, served[header.api_key], header.api_version)
