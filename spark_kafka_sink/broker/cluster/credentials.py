"""The credentials of a broker's users: passwords, and what it keeps of them for SCRAM (RFC 5802). Nothing shows in a repr."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

ITERATIONS: Final = 4096
"""Kafka's minimum, which its tools use (ScramMechanism)."""
_SALT_BYTES: Final = 16

SCRAM_HASHES: Final[Mapping[str, str]] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""The hash of each mechanism."""

ScramKey: TypeAlias = tuple[str, str]
"""A mechanism and a user."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """Enough to check a client, not enough to be one."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = ITERATIONS


def scram_credential(hash_name: str, password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> ScramCredential:
    """Returns what is kept of a password. The salt defaults to a random one."""
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    return of_salted_password(hash_name, hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations), salt, iterations)


def of_salted_password(hash_name: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Returns what is kept of a password that a client has salted (KIP-554)."""
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    return ScramCredential(salt, hashlib.new(hash_name, client_key).digest(), server_key, iterations)


class Credentials:
    """The credentials of all users. Any thread may ask: its state does not change."""

    def __init__(
        self,
        users: Mapping[str, str],
        altered: Callable[[], Mapping[ScramKey, ScramCredential | None]] = dict,
    ) -> None:
        """users: name to password. altered: what clients have set since (KIP-554), None for what they have deleted."""
        self._passwords = {user: password.encode() for user, password in users.items()}
        self._given = {
            (mechanism, user): scram_credential(hash_name, password)
            for mechanism, hash_name in SCRAM_HASHES.items()
            for user, password in users.items()
        }
        self._altered = altered

    def is_password(self, user: str, password: str) -> bool:
        """Compares in a time that does not reveal how much of it is right."""
        known = self._passwords.get(user)
        return hmac.compare_digest(b"" if known is None else known, password.encode()) and known is not None

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        altered = self._altered()
        key = mechanism, user
        return altered[key] if key in altered else self._given.get(key)

    def all_scram(self) -> dict[ScramKey, ScramCredential]:
        """Returns the credentials of all users that can log in with SCRAM."""
        both = {**self._given, **self._altered()}
        return {key: credential for key, credential in both.items() if credential is not None}
