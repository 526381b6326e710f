"""RequestChannel: bounded, in order, and nobody waits for it once it is closed."""

from __future__ import annotations

import threading

from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.network.request_channel import RequestChannel
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.groups import HeartbeatRequest
from tests.broker.network.held import number_of
from tests.broker.requests import request
from tests.waiting import wait_until


def heartbeat(number: int) -> Request:
    return request(HeartbeatRequest("group", number, "member"), ApiKey.HEARTBEAT)


def in_a_thread(channel: RequestChannel, number: int) -> tuple[threading.Thread, list[bool]]:
    sent: list[bool] = []
    thread = threading.Thread(target=lambda: sent.append(channel.send_request(heartbeat(number))))
    thread.start()
    return thread, sent


def test_requests_come_out_in_the_order_in_which_they_went_in() -> None:
    channel = RequestChannel(10)
    for number in range(5):
        assert channel.send_request(heartbeat(number))
    taken = [channel.receive_request(0) for _ in range(5)]

    assert [number_of(each) for each in taken if each is not None] == list(range(5))
    assert channel.receive_request(0) is None


def test_who_finds_it_full_waits_until_one_is_taken() -> None:
    channel = RequestChannel(2)
    channel.send_request(heartbeat(0))
    channel.send_request(heartbeat(1))
    thread, sent = in_a_thread(channel, 2)
    wait_until(lambda: channel.blocked_senders() == 1)
    assert (channel.request_queue_size(), sent) == (2, [])
    channel.receive_request(0)
    thread.join(10)

    assert (channel.request_queue_size(), sent) == (2, [True])


def test_its_end_lets_go_who_waits_and_drops_what_is_in_it() -> None:
    channel = RequestChannel(1)
    channel.send_request(heartbeat(0))
    thread, sent = in_a_thread(channel, 1)
    wait_until(lambda: channel.blocked_senders() == 1)
    channel.close()
    thread.join(10)

    assert sent == [False]
    assert channel.receive_request(0) is None
    assert not channel.send_request(heartbeat(2))


def test_many_threads_lose_no_request_and_never_exceed_the_bound() -> None:
    channel, taken, sizes = RequestChannel(3), [], []

    def send(first: int) -> None:
        for number in range(first, first + 500):
            channel.send_request(heartbeat(number))
            sizes.append(channel.request_queue_size())

    def receive() -> None:
        while (each := channel.receive_request(10)) is not None:
            taken.append(number_of(each))

    receivers = [threading.Thread(target=receive) for _ in range(3)]
    senders = [threading.Thread(target=send, args=[first]) for first in (0, 500, 1000)]
    for thread in receivers + senders:
        thread.start()
    for thread in senders:
        thread.join(30)
    channel.wake_handlers(3)
    for thread in receivers:
        thread.join(30)

    assert sorted(taken) == list(range(1500))
    assert max(sizes) <= 3
