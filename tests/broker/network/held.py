"""Handlers that keep requests until the test answers them, in any order and from its own thread."""

from __future__ import annotations

import threading

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.groups import HeartbeatRequest, HeartbeatResponse
from spark_kafka_sink.protocol.fields import Message
from tests.broker.network.client import request_frame
from tests.waiting import wait_until


def heartbeat_frame(number: int) -> bytes:
    """A small request that `number` is known by: its generation and correlation id."""
    return request_frame(ApiKey.HEARTBEAT, 4, HeartbeatRequest("group", number, "member"), correlation_id=number)


def number_of(request: Request) -> int:
    assert isinstance(request.body, HeartbeatRequest)
    return request.body.generation_id


class Held:
    """A handler. `requests` are those that came, in order."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, _services: BrokerServices, request: Request) -> Message | None:
        self.requests.append(request)
        return None

    @property
    def numbers(self) -> list[int]:
        return [number_of(request) for request in self.requests]

    def wait_for(self, count: int) -> None:
        wait_until(lambda: len(self.requests) >= count)

    def answer(self, index: int) -> None:
        self.requests[index].answer(HeartbeatResponse())


class Blocking:
    """A handler that keeps its thread until `release` is set."""

    def __init__(self) -> None:
        self.release = threading.Event()
        self.entered = threading.Semaphore(0)

    def __call__(self, _services: BrokerServices, request: Request) -> Message:
        self.entered.release()
        assert self.release.wait(30)
        return HeartbeatResponse()
