"""TlsChannel at servers that lie, stutter and leave: each handshake ends with a clear error, and nothing waits for ever."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from spark_kafka_sink.errors import AuthenticationError
from tests.network.tls_ends import TlsEnds, client_context, wait
from tests.security.certificates import Certificates, server_context

Harm = Callable[[random.Random, bytes], bytes]


def cut(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def flipped(rng: random.Random, data: bytes) -> bytes:
    harmed = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        harmed[rng.randrange(len(harmed))] ^= 1 << rng.randrange(8)
    return bytes(harmed)


def with_noise(rng: random.Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randrange(1, 200)) + data[at:]


def noise(rng: random.Random, data: bytes) -> bytes:
    return rng.randbytes(rng.randrange(1, 20_000))


def noise_in_records(rng: random.Random, data: bytes) -> bytes:
    records = []
    for _ in range(rng.randrange(1, 6)):
        body = rng.randbytes(rng.randrange(0, 500))
        kind = rng.choice([20, 21, 22, 23, 24, rng.randrange(256)])
        records.append(bytes([kind, 3, rng.randrange(5)]) + len(body).to_bytes(2, "big") + body)
    return b"".join(records)


def oversized(rng: random.Random, data: bytes) -> bytes:
    return data[:3] + rng.choice([16_385 + 256, 16_640, 0xFFFF, 0]).to_bytes(2, "big") + bytes(70_000)


def doubled(rng: random.Random, data: bytes) -> bytes:
    return data + data


def reordered(rng: random.Random, data: bytes) -> bytes:
    records = []
    while data:
        size = 5 + int.from_bytes(data[3:5], "big")
        records.append(data[:size])
        data = data[size:]
    rng.shuffle(records)
    return b"".join(records)


HARMS: list[Harm] = [cut, flipped, with_noise, noise, noise_in_records, oversized, doubled, reordered]


def outcome(client: ssl.SSLContext, server: ssl.SSLContext, rng: random.Random, harm: Harm, at: int) -> Exception | None:
    """Returns how a handshake ended whose server's answer number `at` is harmed, after which it says nothing and leaves."""
    ends = TlsEnds(client, None)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    far = server.wrap_bio(incoming, outgoing, server_side=True)
    is_done = has_left = False
    answers = 0
    try:
        while True:
            if not is_done:
                is_done = ends.near.handshake()
            elif ends.near.recv_into(memoryview(bytearray(100))) == 0:
                return EOFError()
            if has_left:
                wait(ends.near, ends.near.read_needs if is_done else ends.near.interest)
                continue
            try:
                incoming.write(ends.far_socket.recv(100_000))
            except BlockingIOError:
                wait(ends.far_socket, 1)
                continue
            try:
                far.do_handshake()
            except ssl.SSLError:
                pass  # it waits, or the client has told it why it ends
            if data := outgoing.read():
                has_left = answers == at or is_done
                ends.far_socket.sendall(harm(rng, data) if answers == at else data)
                answers += 1
            if has_left or is_done:
                has_left = True
                ends.far_socket.shutdown(socket.SHUT_WR)
    except (AuthenticationError, EOFError, OSError) as error:
        return error
    finally:
        ends.close()


def check_hostile(certificates: Certificates, folder: Path, count: int, seed: int) -> None:
    rng = random.Random(seed)
    client = client_context(certificates)
    servers = [server_context(certificates.server, folder) for _ in range(2)]
    servers[0].maximum_version = ssl.TLSVersion.TLSv1_2
    kinds = set()
    for number in range(count):
        harm, at = rng.choice(HARMS), rng.choice([0, 0, 0, 1])
        error = outcome(client, rng.choice(servers), rng, harm, at)
        assert isinstance(error, AuthenticationError | EOFError | OSError), (seed, number, harm)
        assert not isinstance(error, ssl.SSLError), (seed, number, harm, error)
        if isinstance(error, OSError):
            assert error.strerror, (seed, number, harm, error)
            assert error.strerror.isprintable(), (seed, number, harm, error)
        kinds.add(type(error))
    assert {AuthenticationError, EOFError, OSError} <= kinds


def test_a_server_that_does_anything_ends_the_handshake_with_a_clear_error(certificates: Certificates, tmp_path: Path) -> None:
    check_hostile(certificates, tmp_path, 400, seed=1)


@pytest.mark.whole("fifty thousand handshakes take minutes")
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 12))
def test_so_do_fifty_thousand(certificates: Certificates, tmp_path: Path, seed: int) -> None:
    check_hostile(certificates, tmp_path, 5_000, seed)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["TLSv1.2", "TLSv1.3"])
def test_a_server_that_leaves_after_any_byte_is_told_as_having_left(
    certificates: Certificates, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    client, server = client_context(certificates), server_context(certificates.server, tmp_path)
    server.maximum_version = version
    sizes = [0]

    def first(size: int) -> Harm:
        def harm(rng: random.Random, data: bytes) -> bytes:
            sizes[0] = len(data)
            return data[:size]

        return harm

    size = 0
    while size <= sizes[0]:
        assert isinstance(outcome(client, server, random.Random(0), first(size), 0), EOFError)
        size += 7  # each byte of the first records' headers, and every seventh after them
        size -= 6 if size < 20 else 0
