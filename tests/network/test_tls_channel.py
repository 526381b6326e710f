"""TlsChannel against the ssl module's server: bytes, refusals in words, sessions. Plain failures of TCP: test_channel.py."""

from __future__ import annotations

import gc
import itertools
import random
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

import pytest

from spark_kafka_sink.errors import AuthenticationError
from spark_kafka_sink.network.channel import Buffer
from spark_kafka_sink.network.frames import FrameWriter
from spark_kafka_sink.network.tls_channel import JOINED, TlsChannel
from tests.network.ends import reset
from tests.network.tls_ends import TlsEnds, client_context, tcp_pair, wait
from tests.security.certificates import Certificates, Identity, server_context

TLS_1_2, TLS_1_3 = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3
BOTH = pytest.mark.parametrize("version", [TLS_1_2, TLS_1_3], ids=["TLSv1.2", "TLSv1.3"])


class Setting:
    """Contexts of both ends, to be changed before `connect`."""

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        self.certificates = certificates
        self.folder = folder
        self.client = client_context(certificates)
        self.server = server_context(certificates.server, folder)
        self.shows_certificate = False
        self.opened: list[TlsEnds] = []

    def serve(self, identity: Identity) -> None:
        self.server = server_context(identity, self.folder)

    def require_clients(self) -> None:
        self.server = server_context(self.certificates.server, self.folder, clients=self.certificates.authority)

    def show(self, identity: Identity) -> None:
        self.client.load_cert_chain(identity.write(self.folder, "client.pem"))
        self.shows_certificate = True

    def only(self, version: ssl.TLSVersion) -> None:
        self.server.minimum_version = self.server.maximum_version = version

    def ends(self, *, host: str = "localhost", buffer_size: int = 0, plain: bool = False) -> TlsEnds:
        ends = TlsEnds(
            self.client,
            None if plain else self.server,
            host=host,
            shows_certificate=self.shows_certificate,
            buffer_size=buffer_size,
        )
        self.opened.append(ends)
        return ends

    def connected(self, **options: int) -> TlsEnds:
        ends = self.ends(**options)  # type: ignore[arg-type]
        ends.shake_hands()
        return ends

    def refusal(self, host: str = "localhost") -> str:
        """Returns what the channel says about a connection that must fail, at the latest when it reads."""
        ends = self.ends(host=host)
        with pytest.raises(AuthenticationError) as refused:
            ends.shake_hands()
            ends.read(1)
        assert refused.value.facts == {"broker": f"{host}:9093"}
        assert refused.value.message.startswith(f"broker {host}:9093: ")
        return refused.value.message


@pytest.fixture
def setting(certificates: Certificates, tmp_path: Path) -> Iterator[Setting]:
    setting = Setting(certificates, tmp_path)
    yield setting
    for ends in setting.opened:
        ends.close()


# Bytes


@BOTH
def test_bytes_go_both_ways_and_are_encrypted(setting: Setting, version: ssl.TLSVersion) -> None:
    setting.only(version)
    ends = setting.connected()
    assert ends.far is not None
    assert ends.near.send([b"ab", bytearray(b"cd"), memoryview(b"ef")]) == 6
    assert ends.far_read(6) == b"abcdef"
    ends.far.send(b"answer")
    assert ends.read(6) == b"answer"
    assert ends.far.version() == {TLS_1_2: "TLSv1.2", TLS_1_3: "TLSv1.3"}[version]


def random_buffers(rng: random.Random) -> list[Buffer]:
    sizes = [rng.choice([1, 61, 1_000, 16_384, JOINED - 1, JOINED, JOINED + 1, 300_000]) for _ in range(rng.randrange(1, 60))]
    kinds: list[Callable[[bytes], Buffer]] = [bytes, bytearray, memoryview]
    return [rng.choice(kinds)(rng.randbytes(size)) for size in sizes]


@BOTH
def test_frames_of_any_buffers_arrive_whole_at_a_slow_reader(setting: Setting, version: ssl.TLSVersion) -> None:
    setting.only(version)
    rng = random.Random(7)
    ends = setting.connected(buffer_size=20_000)
    waits = 0
    for _ in range(6):
        writer = FrameWriter(random_buffers(rng))
        expected = b"".join(writer._views)
        got = bytearray()
        while len(got) < len(expected):
            if not writer.is_done and not writer.write(ends.near.send):
                waits += 1
            try:
                got += ends.far.recv(rng.randrange(1, 40_000)) if ends.far is not None else b""
            except ssl.SSLWantReadError:
                wait(ends.near, EVENT_WRITE)
        assert got == expected
        assert writer.is_done
    assert waits > 5


def test_what_cannot_be_sent_now_is_not_counted(setting: Setting) -> None:
    ends = setting.connected(buffer_size=20_000)
    data = bytes(10_000_000)
    sent = 0
    while taken := ends.near.send([memoryview(data)[sent:]]):
        sent += taken
    assert sent < len(data)
    assert ends.near.send([memoryview(data)[sent:]]) == 0
    assert ends.near.write_needs == EVENT_WRITE


def test_the_rest_of_a_record_is_told_as_buffered(setting: Setting) -> None:
    ends = setting.connected()
    assert ends.far is not None
    ends.far.send(b"one record")
    assert not ends.near.has_buffered_bytes()
    assert ends.read(3) == b"one"
    assert ends.near.has_buffered_bytes()
    assert ends.read(7) == b" record"
    assert not ends.near.has_buffered_bytes()


def test_nothing_to_read_and_the_end_of_the_stream_are_told_apart(setting: Setting) -> None:
    ends = setting.connected()
    assert ends.far is not None
    assert ends.near.recv_into(memoryview(bytearray(10))) is None
    ends.far.close()
    wait(ends.near, EVENT_READ)
    count = None
    while count is None:
        count = ends.near.recv_into(memoryview(bytearray(10)))
    assert count == 0


def test_closing_says_goodbye_without_waiting(setting: Setting) -> None:
    ends = setting.connected()
    assert ends.far is not None
    ends.near.send([b"last"])
    ends.near.close()
    assert ends.near.fileno() == -1
    assert ends.far_read(4) == b"last"
    raw: Any = ends.far
    raw.suppress_ragged_eofs = False
    assert raw.recv(1) == b""  # close_notify: without one it raises SSLEOFError


def test_closing_with_a_reader_that_is_gone_or_full_does_not_wait(setting: Setting) -> None:
    ends = setting.connected(buffer_size=20_000)
    while ends.near.send([bytes(100_000)]):
        pass
    ends.near.close()
    ends = setting.connected()
    reset(ends.far_socket)
    ends.near.close()


def test_a_closed_connection_before_the_handshake_has_no_socket(setting: Setting) -> None:
    ends = setting.ends(plain=True)
    ends.near.close()
    assert ends.near.fileno() == -1


def test_the_handshake_says_what_it_waits_for(setting: Setting) -> None:
    ends = setting.ends(plain=True)
    assert ends.near.interest & EVENT_WRITE
    assert not ends.near.handshake()
    assert ends.near.interest == EVENT_READ


# Refusals


@pytest.mark.fault("security", "untrusted authority, wrong host name, expired certificate")
def test_an_expired_certificate(setting: Setting) -> None:
    setting.serve(setting.certificates.expired)
    message = setting.refusal()
    assert "has expired; its own certificate expires on " in message
    assert "Renew it on the broker" in message


def test_a_certificate_that_is_not_valid_yet(setting: Setting) -> None:
    setting.serve(setting.certificates.not_yet_valid)
    assert "is not valid yet; its own certificate is valid from " in setting.refusal()


@pytest.mark.fault("security", "untrusted authority, wrong host name, expired certificate")
@BOTH
def test_a_certificate_of_an_unknown_authority(setting: Setting, version: ssl.TLSVersion) -> None:
    setting.serve(setting.certificates.of_others)
    setting.only(version)
    message = setting.refusal()
    assert "issued by an authority that is not trusted, 'Other Authority'" in message
    assert "Add the authority's certificate to ssl.truststore.location" in message


def test_a_certificate_that_signs_itself(setting: Setting) -> None:
    setting.serve(setting.certificates.other_authority)
    message = setting.refusal()
    assert "its certificate for 'Other Authority' is self-signed" in message
    assert "ssl.truststore.location" in message


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "localhost."])
def test_names_and_addresses_of_the_certificate_are_accepted(setting: Setting, host: str) -> None:
    setting.ends(host=host).shake_hands()


@pytest.mark.fault("security", "untrusted authority, wrong host name, expired certificate")
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "example"])
def test_a_certificate_for_another_host_is_refused_with_the_names_it_has(setting: Setting, host: str) -> None:
    setting.serve(setting.certificates.elsewhere)
    message = setting.refusal(host)
    assert f"is not valid for the host name {host!r}, but for 'kafka-1.example', '10.0.0.1'" in message
    assert "ssl.endpoint.identification.algorithm" in message


def test_names_that_would_break_a_log_line_are_quoted(setting: Setting) -> None:
    setting.serve(setting.certificates.authority.issue("new\nline \x1b[31m"))
    message = setting.refusal()
    assert r"'new\nline \x1b[31m'" in message
    assert message.isprintable()


def test_a_chain_over_an_intermediate_authority_is_accepted(setting: Setting) -> None:
    setting.serve(setting.certificates.of_intermediate)
    setting.connected()


@BOTH
def test_a_client_certificate_that_is_required_and_missing(setting: Setting, version: ssl.TLSVersion) -> None:
    setting.require_clients()
    setting.only(version)
    message = setting.refusal()
    assert "ssl.keystore.location, or ssl.keystore.certificate.chain and ssl.keystore.key" in message
    assert ("certificate_required" if version is TLS_1_3 else "handshake_failure") in message


@BOTH
def test_a_client_certificate_of_an_unknown_authority(setting: Setting, version: ssl.TLSVersion) -> None:
    setting.require_clients()
    setting.only(version)
    setting.show(setting.certificates.other_client)
    message = setting.refusal()
    assert (
        "it refused the client's certificate: it does not trust the authority that issued the certificate (TLS alert unknown_ca)"
        in message
    )


def test_a_refusal_after_the_handshake_is_told_also_when_the_channel_writes_first(setting: Setting) -> None:
    setting.require_clients()
    setting.only(TLS_1_3)
    ends = setting.ends()
    ends.shake_hands()
    with pytest.raises(AuthenticationError, match="certificate_required"):
        for _ in range(1_000):
            wait(ends.near, EVENT_WRITE)
            ends.near.send([bytes(100_000)])


@BOTH
def test_a_client_certificate_is_shown(setting: Setting, version: ssl.TLSVersion) -> None:
    setting.require_clients()
    setting.only(version)
    setting.show(setting.certificates.client)
    ends = setting.connected()
    assert ends.far is not None
    shown = ends.far.getpeercert()
    assert shown is not None
    assert shown["subject"] == ((("commonName", "client"),),)


def test_no_version_in_common(setting: Setting) -> None:
    setting.client.minimum_version = TLS_1_3
    setting.only(TLS_1_2)
    message = setting.refusal()
    assert "TLS alert protocol_version" in message
    assert "ssl.enabled.protocols" in message


def test_no_cipher_suite_in_common(setting: Setting) -> None:
    setting.client.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    setting.server.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    setting.only(TLS_1_2)
    message = setting.refusal()
    assert "TLS alert handshake_failure" in message
    assert "ssl.cipher.suites" in message


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\0\0\0\x0a\0\0\0\x01\0\x23\0\0\0\0",
        b"220 mail ESMTP\r\n",
    ],
    ids=["HTTP", "SSH", "Kafka", "SMTP"],
)
def test_a_server_that_does_not_speak_tls(setting: Setting, answer: bytes) -> None:
    ends = setting.ends(plain=True)
    assert not ends.near.handshake()
    ends.far_socket.sendall(answer)
    wait(ends.near, EVENT_READ)
    with pytest.raises(AuthenticationError) as refused:
        ends.near.handshake()
    assert refused.value.message.startswith(
        "broker localhost:9093: it does not speak TLS. Set security.protocol=PLAINTEXT or SASL_"
    )


def test_a_connection_closed_during_the_handshake_is_an_end_of_the_stream(setting: Setting) -> None:
    ends = setting.ends(plain=True)
    assert not ends.near.handshake()
    ends.far_socket.shutdown(socket.SHUT_WR)
    wait(ends.near, EVENT_READ)
    with pytest.raises(EOFError):
        ends.near.handshake()


def test_a_connection_reset_during_the_handshake_is_an_error_of_the_system(setting: Setting) -> None:
    ends = setting.ends(plain=True)
    assert not ends.near.handshake()
    reset(ends.far_socket)
    wait(ends.near, EVENT_READ)
    with pytest.raises(ConnectionResetError):
        ends.near.handshake()


def test_a_connection_reset_before_the_handshake_leaves_no_socket(setting: Setting) -> None:
    for data in (b"", b"\x16\x03\x01"):
        channel, client = accepted(setting)
        client.sendall(data)
        reset(client)
        wait(channel, EVENT_READ)
        with pytest.raises(ConnectionResetError):
            channel.handshake()
        channel.close()
        assert channel.fileno() == -1
    gc.collect()  # a socket that nobody closed is a warning, which is an error here


def test_a_damaged_record_is_no_refusal(setting: Setting) -> None:
    ends = setting.connected()
    assert ends.far is not None
    ends.far.send(b"heard")
    ends.read(5)
    with socket.socket(fileno=socket.dup(ends.far_socket.fileno())) as raw:
        raw.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))
    wait(ends.near, EVENT_READ)
    with pytest.raises(OSError, match="TLS failed: ") as failed:
        ends.near.recv_into(memoryview(bytearray(10)))
    assert not isinstance(failed.value, ssl.SSLError)


# The server's end


def test_the_clients_certificate_is_told(setting: Setting) -> None:
    setting.require_clients()
    setting.show(setting.certificates.client)
    near, far = tcp_pair()
    channel = TlsChannel.accept(far, "client:50000", setting.server)
    client = setting.client.wrap_socket(near, server_hostname="localhost", do_handshake_on_connect=False)
    try:
        done: set[object] = set()
        steps: list[Callable[[], bool | None]] = [channel.handshake, client.do_handshake]
        for step in itertools.cycle(steps):
            try:
                if step() is not False:
                    done.add(step)
            except ssl.SSLWantReadError:
                pass
            if len(done) == 2:
                break
        certificate = channel.peer_certificate()
        assert certificate is not None
        assert certificate["subject"] == ((("commonName", "client"),),)
    finally:
        channel.close()
        client.close()


def accepted(setting: Setting) -> tuple[TlsChannel, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname())
        near.settimeout(10)
        far, _ = listener.accept()
    return TlsChannel.accept(far, "client:50000", setting.server), near


@pytest.mark.parametrize(
    ("request_bytes", "says"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it does not speak TLS"),
        (b"\0\0\0\x1a\0\x12\0\x04\0\0\0\0\0\x04", "it does not speak TLS. Set the client's security.protocol=SSL"),
    ],
    ids=["HTTP", "Kafka"],
)
def test_a_client_that_does_not_speak_tls(setting: Setting, request_bytes: bytes, says: str) -> None:
    channel, client = accepted(setting)
    with client:
        client.sendall(request_bytes)
        wait(channel, channel.interest & EVENT_READ)
        with pytest.raises(AuthenticationError, match="client client:50000: ") as refused:
            channel.handshake()
        channel.close()
    assert says in refused.value.message
    assert refused.value.facts == {"peer": "client:50000"}
