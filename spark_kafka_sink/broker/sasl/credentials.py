"""What a broker knows of its users. Nothing of it shows in a repr."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ITERATIONS: Final = 4096
"""Kafka's least, and what its tools take (ScramMechanism)."""
_SALT_BYTES: Final = 16

SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The mechanism's hash."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What of a password is kept (RFC 5802): enough to check a client, not enough to be one."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = ITERATIONS


def scram_credential(hash_name: str, password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> ScramCredential:
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    return ScramCredential(salt, hashlib.new(hash_name, client_key).digest(), server_key, iterations)


class Credentials:
    """Of all users, made once. Immutable: any thread may ask."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """Name to password."""
        self._passwords = {user: password.encode() for user, password in users.items()}
        self._scram = {
            (mechanism, user): scram_credential(hash_name, password)
            for mechanism, hash_name in SCRAM_HASHES.items()
            for user, password in users.items()
        }

    def is_password(self, user: str, password: str) -> bool:
        """In a time that does not tell how much of it is right."""
        known = self._passwords.get(user)
        return hmac.compare_digest(b"" if known is None else known, password.encode()) and known is not None

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        return self._scram.get((mechanism, user))
