"""Names of cipher suites: Java's options use IETF names, while OpenSSL has its own names for the suites of TLS 1.2."""

from __future__ import annotations

import re
from typing import Final

TLS_1_3_SUITES: Final = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
"""The suites that OpenSSL offers. It supports the two CCM suites but does not offer them."""

_IETF: Final = re.compile(r"TLS_(?P<exchange>[A-Z_]+?)_WITH_(?P<cipher>\w+?)(?:_(?P<digest>SHA\d*))?")


def openssl_name(name: str) -> str:
    """Returns OpenSSL's name for a suite of TLS 1.2; a name that is not in IETF notation is returned unchanged.

    OpenSSL 3.2 accepts both. Only suites in which the server has a certificate are translated.
    """
    found = _IETF.fullmatch(name)
    if found is None:
        return name
    exchange = found["exchange"].replace("_", "-")
    # AES_128 and CAMELLIA_256 are one word; CBC goes without saying.
    cipher = re.sub(r"(AES|CAMELLIA|ARIA|CCM)_(\d+)", r"\1\2", found["cipher"]).replace("_CBC", "").replace("_", "-")
    if exchange == "RSA" or (exchange == "ECDHE-RSA" and cipher.startswith("ARIA")):
        exchange = exchange.removesuffix("RSA").removesuffix("-")
    # The digest in ChaCha20's names is that of the key derivation, of which there is no choice.
    digest = "" if cipher.startswith("CHACHA20") else found["digest"]
    return "-".join(filter(None, (exchange, cipher, digest)))
