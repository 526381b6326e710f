"""What a SCRAM client sends (RFC 5802, in the limits of Kafka's ScramMessages: no channel binding, names in ASCII)."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Final

from spark_kafka_sink.broker.sasl.sasl_server import SaslError

_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"

_CLIENT_FIRST: Final = re.compile(
    rf"n,(?:a=(?P<authzid>{_NAME}))?,(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})(?P<extensions>{_EXTENSIONS}))"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<without_proof>c={_BASE64},r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """`bare`: the message without its header, which is signed. `extensions`: as they came, each with a comma in front."""

    bare: str
    user: str
    nonce: str
    authorization_id: str
    extensions: str


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """`without_proof`: the part of the message that is signed."""

    without_proof: str
    nonce: str
    proof: bytes = field(repr=False)


def client_first(message: bytes) -> ClientFirst:
    """Raises SaslError, which says nothing of what was received: it may be a password that went to the wrong place."""
    match = _CLIENT_FIRST.fullmatch(message.decode(errors="replace"))
    if match is None:
        raise SaslError("Invalid SCRAM client first message format")
    authorization_id = _unescaped(match["authzid"] or "")
    return ClientFirst(match["bare"], _unescaped(match["name"]), match["nonce"], authorization_id, match["extensions"])


def client_final(message: bytes) -> ClientFinal:
    """Raises SaslError."""
    match = _CLIENT_FINAL.fullmatch(message.decode(errors="replace"))
    if match is None:
        raise SaslError("Invalid SCRAM client final message format")
    return ClientFinal(match["without_proof"], match["nonce"], base64.b64decode(match["proof"], validate=True))


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
