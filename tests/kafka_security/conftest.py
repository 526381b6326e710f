"""One secure Kafka for all tests of this folder, with its OpenID Connect server and its KDC; all start when first asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest

from tests.kafka_security.oidc_server import OidcServer
from tests.kafka_security.secure_kafka import USER, SecureKafka
from tests.security.kdc import Kdc, missing_programs

_numbers = count(1)


@pytest.fixture(scope="session")
def secure_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    """Tests share it: they make topics of their own and neither stop nor slow it."""
    folder = tmp_path_factory.mktemp("secure-kafka")
    with ExitStack() as stack:
        oidc = stack.enter_context(OidcServer(folder))
        # Without Kerberos on this machine only its own tests are skipped.
        kdc = None if missing_programs() else stack.enter_context(Kdc(tmp_path_factory.mktemp("realm")))
        yield stack.enter_context(SecureKafka(folder, oidc, kdc))


@pytest.fixture
def topic(secure_kafka: SecureKafka) -> str:
    """A new topic of one partition."""
    return secure_kafka.create_topic(f"secure-{next(_numbers)}")


@pytest.fixture
def granted(secure_kafka: SecureKafka) -> Iterator[SecureKafka]:
    """The secure Kafka, where ACLs that a test adds are removed after it."""
    yield secure_kafka
    secure_kafka.revoke_all()


@pytest.fixture
def keytab(secure_kafka: SecureKafka, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The keys of the Kerberos principal USER; MIT's library in this process knows the realm and gets tickets with them.

    Skips the test where no KDC can be started.
    """
    kdc = secure_kafka.kdc
    if kdc is None:
        pytest.skip(missing_programs())
    kdc.add(USER)
    keytab = kdc.keytab(USER)
    environment = {**kdc.environment, "KRB5_CLIENT_KTNAME": f"FILE:{keytab}", "KRB5CCNAME": f"FILE:{keytab}.tickets"}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return keytab
