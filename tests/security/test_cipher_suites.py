"""Names of cipher suites: OpenSSL's own list is the witness."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from spark_kafka_sink.security.tls_context import TLS_1_3_SUITES, openssl_name
from tests.every import every

openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no program openssl")


@every(
    "ietf, openssls",
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_CCM_8", "DHE-RSA-AES256-CCM8"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("HIGH", "HIGH"),
    ],
)
def test_names_of_the_ietf_become_those_of_openssl(ietf: str, openssls: str) -> None:
    assert openssl_name(ietf) == openssls


@openssl
def test_each_suite_of_openssl_in_which_a_server_shows_a_certificate_is_known_by_its_other_name() -> None:
    listing = subprocess.run(
        ["openssl", "ciphers", "-V", "-stdname", "ALL:COMPLEMENTOFALL"], capture_output=True, text=True, check=True, timeout=30
    )
    names = [(words[2], words[4]) for line in listing.stdout.splitlines() if len(words := line.split()) > 4]
    names = [(ietf, own) for ietf, own in names if not any(part in ietf for part in ("PSK", "SRP", "anon")) and ietf != "UNKNOWN"]
    assert len(names) > 50
    assert [(ietf, own) for ietf, own in names if own not in (openssl_name(ietf), ietf)] == []
    assert {ietf for ietf, own in names if ietf == own} >= TLS_1_3_SUITES
