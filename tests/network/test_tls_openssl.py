"""TlsChannel with the programs of OpenSSL at the other end: what the ssl module's server cannot do, and a client not ours."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from selectors import EVENT_READ, EVENT_WRITE

import pytest

from spark_kafka_sink.network.channel import PlainChannel
from spark_kafka_sink.network.tls_channel import TlsChannel
from spark_kafka_sink.network.tls_failures import FarEnd
from tests.network.tls_ends import DEADLINE_S, client_context, tcp_pair, wait
from tests.security.certificates import Certificates, server_context

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no program openssl")


class Program:
    """A program of OpenSSL's with pipes. Ended by `close`."""

    def __init__(self, *arguments: str) -> None:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        self._process = subprocess.Popen(["openssl", *arguments], **pipes)  # type: ignore[call-overload]
        self._output = b""

    def say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def until(self, pattern: bytes) -> re.Match[bytes]:
        """Returns the match of what it has said; the output before it is forgotten."""
        out = self._process.stdout
        assert out is not None
        while (found := re.search(pattern, self._output)) is None:
            wait(out, EVENT_READ)
            more = out.read1()
            assert more, f"it ended and had said {self._output!r}"
            self._output += more
        self._output = self._output[found.end() :]
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate(timeout=DEADLINE_S)


@pytest.fixture
def files(certificates: Certificates, tmp_path: Path) -> Path:
    certificates.server.write(tmp_path, "server.pem")
    (tmp_path / "ca.pem").write_text(certificates.authority.chain_pem)
    return tmp_path


class Server(Program):
    """`openssl s_server` on a free port."""

    def __init__(self, files: Path, *arguments: str) -> None:
        super().__init__("s_server", "-accept", "127.0.0.1:0", "-cert", str(files / "server.pem"), *arguments)
        self.address = ("127.0.0.1", int(self.until(rb"ACCEPT 127\.0\.0\.1:(\d+)")[1]))


def shake_hands(channel: TlsChannel) -> None:
    while not channel.handshake():
        wait(channel, channel.interest)


def read(channel: TlsChannel, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = bytearray(size - len(got))
        count = channel.recv_into(memoryview(piece))
        if count is None:
            wait(channel, channel.read_needs)
        else:
            assert count
            got += piece[:count]
    return bytes(got)


@pytest.fixture
def server(files: Path) -> Iterator[Server]:
    server = Server(files)
    yield server
    server.close()


def test_keys_that_the_server_renews_go_unnoticed(server: Server, certificates: Certificates) -> None:
    sock = socket.create_connection(server.address)
    channel = TlsChannel(PlainChannel(sock, "server"), client_context(certificates), FarEnd("server", "localhost", 9093))
    try:
        shake_hands(channel)
        server.say(b"begin\n")
        assert read(channel, 6) == b"begin\n"  # and the session tickets before it: what comes next is an update of keys
        for number in range(3):
            channel.send([b"question %d\n" % number])
            server.until(b"question %d\n" % number)
            server.say(b"K\n")  # an update of both directions' keys
            wait(channel, EVENT_READ)
            assert channel.recv_into(memoryview(bytearray(1))) is None
            server.say(b"answer %d\n" % number)
            assert read(channel, 9) == b"answer %d\n" % number
    finally:
        channel.close()


def records(data: bytes) -> list[bytes]:
    """Splits bytes into the records of TLS that are whole."""
    found = []
    while len(data) >= 5 and len(data) >= (size := 5 + int.from_bytes(data[3:5], "big")):
        found.append(data[:size])
        data = data[size:]
    return found


class Relay:
    """Carries bytes between a channel and a server, as it is told to."""

    def __init__(self, server: Server, channel_end: socket.socket) -> None:
        self._near = channel_end
        self._server = socket.create_connection(server.address)
        self._server.setblocking(False)

    def forward(self) -> None:
        """Carries what the channel has sent to the server."""
        try:
            self._server.sendall(self._near.recv(100_000))
        except BlockingIOError:
            pass

    def answer(self) -> bytes:
        """Takes what the server has sent."""
        try:
            return self._server.recv(100_000)
        except BlockingIOError:
            return b""

    def close(self) -> None:
        self._server.close()
        self._near.close()


def test_a_write_in_the_middle_of_a_ticket_waits_for_the_rest_of_it(files: Path, certificates: Certificates) -> None:
    """Tickets that hold a client's certificate are longer than these records, and the second record is held back."""
    server = Server(files, "-max_send_frag", "512", "-Verify", "1", "-CAfile", str(files / "ca.pem"))
    context = client_context(certificates)
    context.load_cert_chain(certificates.client.write(files, "client.pem"))
    near, middle = tcp_pair()
    channel = TlsChannel(PlainChannel(near, "server"), context, FarEnd("server", "localhost", 9093))
    relay = Relay(server, middle)
    try:
        while not channel.handshake():
            relay.forward()
            middle.sendall(relay.answer())
        held = b""
        while len(tickets := records(held)) < 3:
            relay.forward()
            held += relay.answer()
        middle.sendall(tickets[0])
        wait(channel, EVENT_READ)
        assert channel.recv_into(memoryview(bytearray(1))) is None
        assert channel.send([b"question\n"]) == 0
        assert channel.write_needs == EVENT_READ
        middle.sendall(b"".join(tickets[1:]))
        wait(channel, EVENT_READ)
        assert channel.recv_into(memoryview(bytearray(1))) is None
        assert channel.send([b"question\n"]) == 9
        assert channel.write_needs == EVENT_WRITE
        wait(middle, EVENT_READ)
        relay.forward()
        server.until(b"question\n")
    finally:
        channel.close()
        relay.close()
        server.close()


def test_the_client_of_openssl_is_accepted(files: Path, certificates: Certificates) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = "{}:{}".format(*listener.getsockname())
        client = Program(
            "s_client",
            "-connect",
            address,
            "-CAfile",
            str(files / "ca.pem"),
            "-verify_return_error",
            "-verify_hostname",
            "localhost",
        )
        listener.settimeout(DEADLINE_S)
        sock, _ = listener.accept()
    channel = TlsChannel.accept(sock, "client:1", server_context(certificates.server, files))
    try:
        shake_hands(channel)
        client.until(rb"Verify return code: 0 \(ok\)")
        client.say(b"question\n")
        assert read(channel, 9) == b"question\n"
        channel.send([b"ans", b"wer\n"])
        client.until(b"answer\n")
    finally:
        channel.close()
        client.close()
