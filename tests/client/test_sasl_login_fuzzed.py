"""Logins whose answers are garbage: each ends with an error of this package, and none is complete without a proof."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from spark_kafka_sink.client.api_versions import NodeApiVersions
from spark_kafka_sink.client.sasl_login import BrokerAddress, LoginRequest, SaslLogin
from spark_kafka_sink.errors import PeerError
from spark_kafka_sink.options.security_config import security_config
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.sasl import (
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from spark_kafka_sink.protocol.messages import decode_response, encode_response
from spark_kafka_sink.security.sasl.mechanism import open_mechanism
from tests.client.sasl import LOGIN, PASSWORD

LOGINS = 50_000
BROKER = BrokerAddress("broker 1 (kafka:9093)", "kafka", 9093)
VERSIONS = NodeApiVersions(BROKER.label, {int(ApiKey.SASL_HANDSHAKE): (0, 1), int(ApiKey.SASL_AUTHENTICATE): (0, 2)})
NO_BYTES = b""


def good_handshake(rng: random.Random) -> bytes:
    return b"".join(encode_response(SASL_HANDSHAKE, 1, 7, SaslHandshakeResponse(0, ["PLAIN", "SCRAM-SHA-256"])))


def some_challenge(rng: random.Random) -> bytes:
    challenge = rng.choice([NO_BYTES, b"r=abc,s=AAAA,i=4096", b"r=,s=,i=1", b"v=AAAA", b"e=other-error", rng.randbytes(20)])
    body = SaslAuthenticateResponse(rng.choice([0, 0, 0, 58, 33, 34, 7, -1, 999]), rng.choice([None, "no"]), challenge, 1000)
    return b"".join(encode_response(SASL_AUTHENTICATE, 2, 7, body))


def damaged(rng: random.Random, frame: bytes) -> bytes:
    """Truncated, longer, or with some bytes changed; or none of it."""
    match rng.randrange(5):
        case 0:
            return frame[: rng.randrange(len(frame) + 1)]
        case 1:
            return frame + rng.randbytes(rng.randrange(1, 9))
        case 2:
            changed = bytearray(frame)
            for _ in range(rng.randrange(1, 4)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            return bytes(changed)
        case 3:
            return rng.randbytes(rng.randrange(40))
        case _:
            return frame


def answered(login: SaslLogin, request: LoginRequest, frame: bytes) -> LoginRequest | None:
    return login.answered(decode_response(request.api, request.version, frame)[1])


@pytest.mark.whole("7 s")
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_no_answer_does_more_than_end_a_login(mechanism: str) -> None:
    rng = random.Random(20)
    config = security_config({**LOGIN, "sasl.mechanism": mechanism})
    mechanisms = open_mechanism(config, lambda: None)
    answers: list[Callable[[random.Random], bytes]] = [good_handshake, some_challenge, some_challenge, some_challenge]
    complete = 0
    for _ in range(LOGINS // 2):
        login = SaslLogin(mechanisms, BROKER, VERSIONS, config.security_protocol)
        request = login.begin()
        try:
            for answer in answers:
                if request is None:
                    break
                request = answered(login, request, damaged(rng, answer(rng)))
        except PeerError as error:
            failure = error
        else:
            complete += login.is_complete
            continue
        message = failure.message
        if not (message.isprintable() and len(message) < 2_000 and PASSWORD not in message and not login.is_complete):
            pytest.fail(f"{message!r} after {login.state}")
    # PLAIN takes the broker's word; SCRAM wants a signature that only who knows the password can make.
    assert (complete > 0) == (mechanism == "PLAIN")
