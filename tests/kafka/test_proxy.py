"""The proxy does to connections what a test says, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.proxy import TcpProxy
from tests.kafka.witness import read_topic


class Echo:
    """A server that answers each connection with what it gets; `got` counts the bytes that arrived at it."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.got = 0
        self._threads = [threading.Thread(target=self._accept, name="echo-accept")]
        self._open: list[socket.socket] = []
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(peer)
            thread = threading.Thread(target=self._serve, args=(peer,), name="echo-serve")
            self._threads.append(thread)
            thread.start()

    def _serve(self, peer: socket.socket) -> None:
        with peer:
            try:
                while data := peer.recv(65536):
                    self.got += len(data)
                    peer.sendall(data)
            except OSError:
                pass  # the proxy reset the connection, as it was told

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._open:
            try:
                peer.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # closed already
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def line(proxy: TcpProxy, echo: Echo) -> Iterator[socket.socket]:
    """An open connection through the proxy, proven to work."""
    proxy.forward_to(echo.address)
    with connect(proxy) as sock:
        assert exchange(sock, b"hello") == b"hello"
        yield sock


def connect(proxy: TcpProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=10)


def exchange(sock: socket.socket, data: bytes) -> bytes:
    sock.sendall(data)
    return receive(sock, len(data))


def receive(sock: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        if not (data := sock.recv(count - len(got))):
            break
        got += data
    return got


def silent(sock: socket.socket) -> bool:
    """Whether nothing comes for a fifth of a second: as near as one can come to proving that nothing will."""
    sock.settimeout(0.2)
    try:
        return not sock.recv(1)
    except TimeoutError:
        return True
    finally:
        sock.settimeout(10)


def test_bytes_go_through_unchanged_in_both_directions(line: socket.socket) -> None:
    data = bytes(range(256)) * 4000
    sender = threading.Thread(target=line.sendall, args=(data,))
    sender.start()
    assert receive(line, len(data)) == data
    sender.join(10)


def test_cut_resets_open_connections_and_takes_new_ones(line: socket.socket, proxy: TcpProxy) -> None:
    proxy.cut()
    with pytest.raises(ConnectionResetError):
        line.recv(1)
    with connect(proxy) as again:
        assert exchange(again, b"back") == b"back"
    assert proxy.accepted == 2


def test_an_answer_can_be_lost_after_its_request_arrived(line: socket.socket, proxy: TcpProxy, echo: Echo) -> None:
    proxy.cut_after(0, "to_client")
    line.sendall(b"request")
    with pytest.raises(ConnectionResetError):
        line.recv(1)
    assert (echo.got, proxy.cuts) == (len(b"hello" + b"request"), 1)


def test_a_request_can_be_lost_half_way(line: socket.socket, proxy: TcpProxy, echo: Echo) -> None:
    proxy.cut_after(7, "to_server")
    assert exchange(line, b"fits in"[:7]) == b"fits in"
    line.sendall(b"not")
    with pytest.raises(ConnectionResetError):
        line.recv(1)
    with connect(proxy) as again:
        assert exchange(again, b"only once") == b"only once"


def test_what_is_paused_comes_after_it_is_resumed(line: socket.socket, proxy: TcpProxy) -> None:
    proxy.pause("to_client")
    line.sendall(b"held")
    assert silent(line)
    proxy.resume("to_client")
    assert receive(line, 4) == b"held"


def test_a_paused_proxy_stops_taking_bytes(line: socket.socket, proxy: TcpProxy) -> None:
    proxy.pause()
    line.settimeout(0.5)
    with pytest.raises(TimeoutError):
        line.sendall(b"x" * 100_000_000)


def test_what_a_black_hole_swallowed_never_comes(line: socket.socket, proxy: TcpProxy, echo: Echo) -> None:
    proxy.black_hole("to_server")
    line.sendall(b"swallowed")
    assert silent(line)
    proxy.heal()
    assert exchange(line, b"next") == b"next"
    assert echo.got == len(b"hello" + b"next")


def test_a_delay_is_added_once_for_all_bytes_under_way(line: socket.socket, proxy: TcpProxy) -> None:
    proxy.delay(1, "to_server")
    started = time.monotonic()
    for _ in range(200):  # it would take longer than a test may, if it were added for each
        line.sendall(b"x")
        time.sleep(0.002)
    assert receive(line, 200) == b"x" * 200
    assert time.monotonic() - started >= 1


def test_a_rate_limit_holds(line: socket.socket, proxy: TcpProxy) -> None:
    proxy.rate_limit(100_000, "to_client")
    started = time.monotonic()
    assert len(exchange(line, b"x" * 50_000)) == 50_000
    assert time.monotonic() - started >= 0.45


def test_refused_until_healed(line: socket.socket, proxy: TcpProxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    assert exchange(line, b"open") == b"open"
    proxy.heal()
    with connect(proxy) as again:
        assert exchange(again, b"back") == b"back"


def test_clients_of_a_broker_behind_a_proxy_talk_to_it_only_through_the_proxy(
    proxied_kafka: ProxiedKafka, new_topic: NewTopic
) -> None:
    cluster, proxy = proxied_kafka.cluster, proxied_kafka.proxy
    topic = new_topic(on=cluster)
    producer = Producer({"bootstrap.servers": proxy.address, "log_level": 0, "reconnect.backoff.max.ms": 100})
    producer.produce(topic, b"through")
    assert producer.flush(30) == 0
    proxy.pause()
    producer.produce(topic, b"held")
    assert producer.flush(0.5) == 1
    proxy.resume()
    assert producer.flush(30) == 0
    assert [record.value for record in read_topic(cluster.direct_servers, topic)] == [b"through", b"held"]
