"""GSSAPI with a real KDC: our client against the server's side of python-gssapi."""

from __future__ import annotations

import importlib.util
import random
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from spark_kafka_sink.errors import AuthenticationError, DisconnectedError, OptionError, PeerError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.options.security_config import SecurityConfig
from spark_kafka_sink.security.sasl import gssapi_client
from spark_kafka_sink.security.sasl.gssapi_client import GssapiClient, GssapiMechanism, KerberosSettings, kerberos_settings
from tests.every import every
from tests.security.kdc import REALM, Kdc
from tests.security.sasl.test_fuzzed_handshakes import fuzzed

MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
CLIENT = "alice"
SERVICE = "kafka/localhost"

needs_gssapi = pytest.mark.skipif(
    importlib.util.find_spec("gssapi") is None,
    reason="python-gssapi is not installed: apt-get install gcc python3-dev libkrb5-dev; pip install -e '.[kerberos]'",
)


def config(line: str = "", **settings: Any) -> SecurityConfig:
    jaas = Secret(f"{MODULE} {line};") if line else None
    return SecurityConfig(security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI", sasl_jaas_config=jaas, **settings)


# Options


@every(
    "made, settings",
    [
        (config(sasl_kerberos_service_name="kafka"), KerberosSettings("kafka")),
        (config('serviceName="kafka" useTicketCache=true'), KerberosSettings("kafka")),
        (
            config('serviceName="k" ticketCache="/tmp/cc"', sasl_kerberos_service_name="k"),
            KerberosSettings("k", None, None, "/tmp/cc"),
        ),
        (
            config('useKeyTab=true storeKey=true keyTab="/a.keytab" principal="a@R" serviceName="kafka"'),
            KerberosSettings("kafka", "a@R", "/a.keytab"),
        ),
        (config('useKeyTab=false keyTab="/a.keytab" serviceName="kafka"'), KerberosSettings("kafka")),
        (
            config(sasl_kerberos_service_name="kafka", sasl_kerberos_principal="a", sasl_kerberos_keytab="/b.keytab"),
            KerberosSettings("kafka", "a", "/b.keytab"),
        ),
    ],
)
def test_options_and_login_line_say_who_logs_in(made: SecurityConfig, settings: KerberosSettings) -> None:
    assert kerberos_settings(made) == settings


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (config(), "option sasl.kerberos.service.name: it is not set"),
        (config('serviceName="a"', sasl_kerberos_service_name="b"), "has a different value; set only one of them"),
        (config('serviceName="a" useKeyTab=true'), 'useKeyTab=true requires keyTab="/path"'),
    ],
)
def test_options_that_do_not_do_are_errors(made: SecurityConfig, text: str) -> None:
    with pytest.raises(OptionError, match=text):
        kerberos_settings(made)


def test_a_missing_gssapi_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(OptionError) as error:
        GssapiMechanism(config(sasl_kerberos_service_name="kafka"), lambda: None)
    for needed in ("apt-get install gcc python3-dev libkrb5-dev", "pip install 'spark-kafka-sink[kerberos]'", "conda install"):
        assert needed in error.value.message


# Logins


@pytest.fixture
def realm(kdc: Kdc, monkeypatch: pytest.MonkeyPatch) -> Kdc:
    """The KDC with a client and a service, which this process uses."""
    for principal in (CLIENT, SERVICE):
        kdc.add(principal)
    for name, value in kdc.environment.items():
        monkeypatch.setenv(name, value)
    return kdc


@pytest.fixture
def keytab(realm: Kdc) -> Path:
    return realm.keytab(CLIENT)


def with_keytab(keytab: Path) -> SecurityConfig:
    return config(f'useKeyTab=true keyTab="{keytab}" principal="{CLIENT}@{REALM}" serviceName="kafka"')


class Server:
    """The broker's side of RFC 4752, by python-gssapi."""

    def __init__(self, realm: Kdc, layers: bytes = b"\x01\x00\x00\x00", keytab: Path | None = None) -> None:
        import gssapi

        credentials = gssapi.Credentials(usage="accept", store={"keytab": f"FILE:{keytab or realm.keytab(SERVICE)}"})
        self._layers = layers
        self.context: Any = gssapi.SecurityContext(creds=credentials, usage="accept")

    def accept(self, token: bytes) -> bytes:
        answer: bytes = self.context.step(token)
        return answer

    def offer(self) -> bytes:
        offer: bytes = self.context.wrap(self._layers, False).message
        return offer

    def chosen(self, reply: bytes) -> bytes:
        chosen: bytes = self.context.unwrap(reply).message
        return chosen


def client_of(settings: SecurityConfig, host: str = "localhost") -> GssapiClient:
    """A client, waited for as a login waits."""
    woken = threading.Event()
    mechanism = GssapiMechanism(settings, woken.set)
    assert mechanism.client(host) is None
    assert woken.wait(60), "nobody was woken in 60 s"
    client = mechanism.client(host)
    assert client is not None
    return client


@needs_gssapi
def test_a_keytab_logs_in(realm: Kdc, keytab: Path) -> None:
    client, server = client_of(with_keytab(keytab)), Server(realm)
    first = client.evaluate(None)
    assert first
    assert client.evaluate(server.accept(first)) == b""
    assert not client.is_complete()
    reply = client.evaluate(server.offer())
    assert reply
    assert server.chosen(reply) == b"\x01\x00\x00\x00"  # no layer, no size, and the principal is who logs in
    assert client.is_complete()
    assert client.principal() == f"{CLIENT}@{REALM}" == str(server.context.initiator_name)


@needs_gssapi
def test_a_ticket_cache_logs_in(realm: Kdc, keytab: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = realm.ticket_cache(CLIENT, keytab)
    client = client_of(config(f'useTicketCache=true ticketCache="{cache}" serviceName="kafka"'))
    assert Server(realm).accept(client.evaluate(None) or b"")
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}")
    assert client_of(config(sasl_kerberos_service_name="kafka")).principal() == f"{CLIENT}@{REALM}"


@needs_gssapi
def test_each_connection_has_a_login_of_its_own(realm: Kdc, keytab: Path) -> None:
    woken = threading.Semaphore(0)
    mechanism = GssapiMechanism(with_keytab(keytab), woken.release)
    found = set()
    for _ in range(3):
        assert mechanism.client("localhost") is None
        assert woken.acquire(timeout=60)
        client = mechanism.client("localhost")
        assert client is not None
        found.add(client.evaluate(None))
    assert len(found) == 3


@needs_gssapi
@pytest.mark.parametrize(("lasts", "line"), [("READY_FOR_S", ""), ("TOLD_FOR_S", 'ticketCache="/nowhere"')])
def test_what_was_prepared_too_long_ago_is_not_used(
    realm: Kdc, keytab: Path, monkeypatch: pytest.MonkeyPatch, lasts: str, line: str
) -> None:
    monkeypatch.setattr(gssapi_client, lasts, 0)
    woken = threading.Semaphore(0)
    settings = config(f'serviceName="kafka" {line}') if line else with_keytab(keytab)
    mechanism = GssapiMechanism(settings, woken.release)
    for _ in range(3):
        assert mechanism.client("localhost") is None
        assert woken.acquire(timeout=60)


@needs_gssapi
def test_the_server_must_prove_itself(realm: Kdc, keytab: Path) -> None:
    client = client_of(with_keytab(keytab))
    client.evaluate(None)
    with pytest.raises(AuthenticationError, match="Kerberos: Invalid token was supplied"):
        client.evaluate(b"not a token")
    assert not client.is_complete()


@needs_gssapi
@pytest.mark.parametrize(
    ("layers", "text"),
    [(b"\x06\x00\x10\x00", "requires a GSSAPI security layer"), (b"\x01", "has 1 byte,"), (b"", "has 0 bytes")],
)
def test_other_layers_than_none_are_refused(realm: Kdc, keytab: Path, layers: bytes, text: str) -> None:
    client, server = client_of(with_keytab(keytab)), Server(realm, layers)
    client.evaluate(server.accept(client.evaluate(None) or b""))
    with pytest.raises(AuthenticationError, match=text):
        client.evaluate(server.offer())
    assert not client.is_complete()
    with pytest.raises(AuthenticationError, match="a message that GSSAPI does not allow"):
        client.evaluate(server.offer())


@needs_gssapi
def test_an_offer_of_layers_is_checked_for_its_origin(realm: Kdc, keytab: Path) -> None:
    client, server = client_of(with_keytab(keytab)), Server(realm)
    client.evaluate(server.accept(client.evaluate(None) or b""))
    with pytest.raises(AuthenticationError, match="Kerberos: A token had an invalid Message Integrity Check"):
        client.evaluate(server.offer()[:-1] + b"\x00")


@needs_gssapi
def test_fuzzed_handshakes_end_in_a_login_that_the_server_has_or_in_an_error(realm: Kdc, keytab: Path) -> None:
    rng, complete = random.Random(), 0
    settings, acceptor = kerberos_settings(with_keytab(keytab)), realm.keytab(SERVICE)
    for _ in range(500):
        client, server = GssapiClient(settings, "localhost"), Server(realm, keytab=acceptor)
        try:
            assert client.evaluate(fuzzed(rng, server.accept(client.evaluate(None) or b""))) == b""
            reply = client.evaluate(fuzzed(rng, server.offer()))
        except PeerError as error:
            text = error.message
            assert text.isprintable()
            assert str(keytab) not in text  # which is good: what came from the broker was not
            assert not client.is_complete()
        else:
            complete += 1
            assert client.is_complete()
            assert server.chosen(reply or b"") == b"\x01\x00\x00\x00"
    assert 0 < complete < 500


# Errors


def error_of(settings: SecurityConfig, host: str = "localhost") -> str:
    with pytest.raises(AuthenticationError) as error:
        client_of(settings, host)
    return error.value.message


@needs_gssapi
def test_an_unknown_broker_is_told_by_its_principal(realm: Kdc, keytab: Path) -> None:
    text = error_of(with_keytab(keytab), "127.0.0.1")
    assert f"Server kafka/127.0.0.1@{REALM} not found in Kerberos database" in text
    assert text.endswith("Connect with the host name in the broker's principal, or add the principal kafka/127.0.0.1")


@needs_gssapi
def test_a_keytab_of_another_principal_is_told(realm: Kdc, keytab: Path) -> None:
    text = error_of(config(f'useKeyTab=true keyTab="{keytab}" principal="bob@{REALM}" serviceName="kafka"'))
    assert text.endswith(f"Check that {keytab} holds the current key of bob@{REALM}: klist -kt")


@needs_gssapi
def test_a_principal_that_is_gone_is_told(realm: Kdc) -> None:
    realm.add("gone")
    keytab = realm.keytab("gone")
    realm.kadmin("delete_principal", "-force", "gone")
    text = error_of(config(f'useKeyTab=true keyTab="{keytab}" principal="gone@{REALM}" serviceName="kafka"'))
    assert text == f"Kerberos: Client 'gone@{REALM}' not found in Kerberos database. Check the principal and the realm"


@needs_gssapi
def test_a_keytab_with_an_old_key_is_told(realm: Kdc) -> None:
    realm.add("renewed")
    keytab = realm.keytab("renewed")
    realm.kadmin("change_password", "-randkey", "renewed")
    text = error_of(config(f'useKeyTab=true keyTab="{keytab}" principal="renewed@{REALM}" serviceName="kafka"'))
    assert text.endswith(f"Check that {keytab} holds the current key of renewed@{REALM}: klist -kt")


@needs_gssapi
def test_a_keytab_that_is_missing_is_told(realm: Kdc) -> None:
    text = error_of(config('useKeyTab=true keyTab="/nowhere/a.keytab" serviceName="kafka"'))
    assert text == "the keytab /nowhere/a.keytab does not exist or is not readable by this process"


@needs_gssapi
def test_no_ticket_at_all_says_to_run_kinit(realm: Kdc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{realm.folder}/nothing")
    assert error_of(config(sasl_kerberos_service_name="kafka")).endswith(
        "Run kinit, or set a keytab: sasl.kerberos.keytab and sasl.kerberos.principal"
    )


@needs_gssapi
def test_a_kdc_that_is_away_may_be_tried_again(realm: Kdc, keytab: Path) -> None:
    realm.stop()
    try:
        with pytest.raises(DisconnectedError, match=f"Cannot contact any KDC for realm '{REALM}'"):
            client_of(with_keytab(keytab))
    finally:
        realm.start()
    client_of(with_keytab(keytab))
