"""How long requests took at each station, and how idle the threads were."""

from __future__ import annotations

import time

import pytest

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.idle_meter import WINDOW_S, IdleMeter
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.network.request_metrics import SAMPLE_SIZE, RequestMetrics
from spark_kafka_sink.broker.network.request_times import RequestTimes, Station
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.groups import HeartbeatResponse
from tests.broker.network.held import Held, heartbeat_frame
from tests.broker.network.servers import Server, eventually

MS = 1_000_000


def times(received: int, dequeued: int, handled: int, answered: int, response_dequeued: int) -> RequestTimes:
    """In ms."""
    times = RequestTimes()
    times.received, times.dequeued, times.handled = received * MS, dequeued * MS, handled * MS
    times.answered, times.response_dequeued = answered * MS, response_dequeued * MS
    return times


def test_the_time_of_a_request_is_parted_among_its_stations() -> None:
    spent = times(1, 2, 4, 8, 16).spent_ms(32 * MS)

    assert spent == {
        Station.REQUEST_QUEUE: 1,
        Station.LOCAL: 2,
        Station.REMOTE: 4,
        Station.THROTTLE: 0,
        Station.RESPONSE_QUEUE: 8,
        Station.RESPONSE_SEND: 16,
        Station.TOTAL: 31,
    }


def test_a_request_that_its_handler_answered_itself_was_nowhere_else() -> None:
    # The answer went out while the handler was still at its end.
    spent = times(1, 2, 20, 8, 16).spent_ms(32 * MS)

    assert (spent[Station.LOCAL], spent[Station.REMOTE]) == (6, 0)


def record(metrics: RequestMetrics, ms: float, error_code: int = 0) -> None:
    spent = dict.fromkeys(Station, ms)
    metrics.record("FETCH", spent, request_bytes=10, response_bytes=100, error_code=error_code)


def test_a_snapshot_has_counts_sizes_errors_and_times_by_api() -> None:
    metrics = RequestMetrics()
    for ms in range(1, 101):
        record(metrics, ms, ErrorCode.NOT_LEADER_OR_FOLLOWER if ms % 2 else 0)
    snapshot = metrics.snapshot()
    fetch = snapshot["FETCH"]
    total = fetch.times[Station.TOTAL]

    assert set(snapshot) == {"FETCH"}
    assert (fetch.requests, fetch.request_bytes, fetch.response_bytes) == (100, 1_000, 10_000)
    assert fetch.errors == {ErrorCode.NOT_LEADER_OR_FOLLOWER: 50}
    assert (total.mean_ms, total.max_ms, total.median_ms, total.p99_ms) == (50.5, 100, 50, 99)


def test_percentiles_are_of_the_newest_and_the_largest_of_all() -> None:
    metrics = RequestMetrics()
    record(metrics, 1_000_000)
    for _ in range(SAMPLE_SIZE):
        record(metrics, 1)
    total = metrics.snapshot()["FETCH"].times[Station.TOTAL]

    assert (total.max_ms, total.p99_ms) == (1_000_000, 1)


class Clock:
    seconds = 100

    def __call__(self) -> int:
        return self.seconds * 1_000_000_000


def test_who_did_nothing_is_idle() -> None:
    assert IdleMeter().ratio() == 1


def test_the_idle_ratio_is_that_of_the_last_while() -> None:
    clock = Clock()
    meter = IdleMeter(clock)
    meter.record(0, 1_000)
    clock.seconds += WINDOW_S - 1
    meter.record(3_000, 0)
    assert meter.ratio() == 0.75
    clock.seconds += 1
    assert meter.ratio() == 1


# On sockets


def test_a_held_request_has_its_time_as_remote_time() -> None:
    held = Held()
    with Server({ApiKey.HEARTBEAT: held}) as server:
        client = server.client()
        client.send(heartbeat_frame(1))
        held.wait_for(1)
        eventually(lambda: held.requests[0].times.handled > 0)
        time.sleep(0.05)
        held.answer(0)
        client.receive()
        eventually(lambda: "HEARTBEAT" in server.sockets.snapshot().requests)
        spent = server.sockets.snapshot().requests["HEARTBEAT"].times

    assert spent[Station.REMOTE].max_ms >= 50
    assert spent[Station.TOTAL].max_ms >= spent[Station.REMOTE].max_ms


def test_a_slow_handler_has_its_time_as_local_time_and_an_error_is_counted() -> None:
    def slow(_services: BrokerServices, _request: Request) -> Message:
        time.sleep(0.05)
        return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)

    with Server({ApiKey.HEARTBEAT: slow}) as server:
        client = server.client()
        client.send(heartbeat_frame(1))
        client.receive()
        eventually(lambda: "HEARTBEAT" in server.sockets.snapshot().requests)
        heartbeat = server.sockets.snapshot().requests["HEARTBEAT"]

    assert heartbeat.times[Station.LOCAL].max_ms >= 50
    assert heartbeat.errors == {ErrorCode.UNKNOWN_MEMBER_ID: 1}
    assert heartbeat.request_bytes == len(heartbeat_frame(1)) - 4
    assert heartbeat.response_bytes > 0


@pytest.mark.parametrize("busy", [False, True])
def test_threads_tell_how_idle_they_are(busy: bool) -> None:
    def work(_services: BrokerServices, _request: Request) -> Message:
        time.sleep(0.3)
        return HeartbeatResponse()

    with Server({ApiKey.HEARTBEAT: work}, num_io_threads=1, num_network_threads=1) as server:
        client = server.client()
        if busy:
            client.send(heartbeat_frame(1) + heartbeat_frame(2))
            client.receive()
            client.receive()
        else:
            client.api_versions()
        eventually(lambda: (server.pool.idle_ratio() < 0.5) == busy)
        eventually(lambda: server.sockets.snapshot().processors_idle_ratio > 0.5)
