"""The client's side of SCRAM, written from RFC 5802 without the server's code."""

from __future__ import annotations

import base64
import hashlib
import hmac


class ScramClient:
    def __init__(self, user: str, password: str, *, nonce: str = "client-nonce", hash_name: str = "sha256") -> None:
        self._password = password
        self._nonce = nonce
        self._hash = hash_name
        self._bare = f"n={user.replace('=', '=3D').replace(',', '=2C')},r={nonce}"

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        fields = dict(part.split("=", 1) for part in server_first.decode().split(","))
        assert fields["r"].startswith(self._nonce)
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
        without_proof = f"c=biws,r={fields['r']}"  # the header n,, in base64
        self._signed = f"{self._bare},{server_first.decode()},{without_proof}".encode()
        self._server_key = hmac.digest(salted, b"Server Key", self._hash)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), self._signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def server_signature(self) -> bytes:
        """What the server's last message must be."""
        return b"v=" + base64.b64encode(hmac.digest(self._server_key, self._signed, self._hash))
