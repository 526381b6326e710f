"""What a broker knows of its users. Nothing of it shows in a repr."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping

from spark_kafka_sink.broker.cluster.scram_credential import (
    SCRAM_HASHES,
    ScramCredential,
    ScramKey,
    scram_credential,
)

__all__ = ["SCRAM_HASHES", "Credentials", "ScramCredential", "scram_credential"]


class Credentials:
    """Of all users. Without state that changes: any thread may ask."""

    def __init__(
        self,
        users: Mapping[str, str],
        altered: Callable[[], Mapping[ScramKey, ScramCredential | None]] = dict,
    ) -> None:
        """users: name to password. altered: what clients have set instead since (KIP-554); None for what they have deleted."""
        self._passwords = {user: password.encode() for user, password in users.items()}
        self._given = {
            (mechanism, user): scram_credential(hash_name, password)
            for mechanism, hash_name in SCRAM_HASHES.items()
            for user, password in users.items()
        }
        self._altered = altered

    def is_password(self, user: str, password: str) -> bool:
        """In a time that does not tell how much of it is right."""
        known = self._passwords.get(user)
        return hmac.compare_digest(b"" if known is None else known, password.encode()) and known is not None

    def scram(self, mechanism: str, user: str) -> ScramCredential | None:
        altered = self._altered()
        key = mechanism, user
        return altered[key] if key in altered else self._given.get(key)

    def all_scram(self) -> dict[ScramKey, ScramCredential]:
        """Of all users that can log in with SCRAM."""
        both = {**self._given, **self._altered()}
        return {key: credential for key, credential in both.items() if credential is not None}
