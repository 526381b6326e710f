"""SCRAM messages and formulas that both ends need (RFC 5802, RFC 7677), like Kafka's ScramMessages and ScramFormatter."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""

MIN_ITERATIONS: Final = 4096
"""Kafka's minimum (ScramMechanism)."""

# Grammar of the messages, as regular expressions.
VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
BASE64: Final = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
EXTENSIONS: Final = rf"(?:,[A-Za-z]+={VALUE})*"


def escaped(user: str) -> str:
    """Returns a user name with `=` and `,` escaped for a message."""
    return user.replace("=", "=3D").replace(",", "=2C")


def unescaped(name: str) -> str:
    """Returns the user name that was passed to `escaped`."""
    return name.replace("=2C", ",").replace("=3D", "=")


def client_key(salted_password: bytes, hash_name: str) -> bytes:
    return hmac.digest(salted_password, b"Client Key", hash_name)


def server_key(salted_password: bytes, hash_name: str) -> bytes:
    return hmac.digest(salted_password, b"Server Key", hash_name)


def stored_key(key_of_client: bytes, hash_name: str) -> bytes:
    return hashlib.new(hash_name, key_of_client).digest()


def xor(one: bytes, other: bytes) -> bytes:
    """Returns the exclusive or of two texts of equal length."""
    return bytes(left ^ right for left, right in zip(one, other, strict=True))
