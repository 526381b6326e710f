"""Credentials of a broker's users: passwords and SCRAM keys (RFC 5802). None of them is part of a repr."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from spark_kafka_sink.security.sasl.scram import MIN_ITERATIONS, SCRAM_HASHES, client_key, server_key, stored_key

ITERATIONS: Final = MIN_ITERATIONS
"""The number of iterations. Kafka's tools use the minimum."""
_SALT_BYTES: Final = 16

ScramKey: TypeAlias = tuple[str, str]
"""A mechanism and a user."""


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """The keys that verify a SCRAM client. They are not enough to log in as one."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int = ITERATIONS


def scram_credential(hash_name: str, password: str, salt: bytes | None = None, iterations: int = ITERATIONS) -> ScramCredential:
    """Returns the credential for a password. The salt defaults to a random one."""
    salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
    return of_salted_password(hash_name, hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations), salt, iterations)


def of_salted_password(hash_name: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Returns the credential for a password that a client has salted (KIP-554)."""
    stored = stored_key(client_key(salted, hash_name), hash_name)
    return ScramCredential(salt, stored, server_key(salted, hash_name), iterations)


class Credentials:
    """The credentials of all users. Its state does not change, so any thread may call it."""

    def __init__(self, users: Mapping[str, str], altered: Callable[[], Mapping[ScramKey, ScramCredential | None]] = dict) -> None:
        """Creates the credentials.

        Args:
            users: passwords by user name.
            altered: returns the credentials that clients have set since (KIP-554), and None for those they deleted.
        """
        self._passwords = {user: password.encode() for user, password in users.items()}
        self._given = {
            (mechanism, user): scram_credential(hash_name, password)
            for mechanism, hash_name in SCRAM_HASHES.items()
            for user, password in users.items()
        }
        self._altered = altered

    def is_password(self, user: str, password: str) -> bool:
        """Compares in constant time, so that timing reveals nothing about the password."""
        known = self._passwords.get(user)
        return hmac.compare_digest(b"" if known is None else known, password.encode()) and known is not None

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        altered = self._altered()
        key = mechanism, user
        return altered[key] if key in altered else self._given.get(key)

    def all_scram(self) -> dict[ScramKey, ScramCredential]:
        """Returns the SCRAM credentials of all users that have one."""
        both = {**self._given, **self._altered()}
        return {key: credential for key, credential in both.items() if credential is not None}
