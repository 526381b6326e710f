"""A fault in its maker's hand."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.faults.fault import Fault
from spark_kafka_sink.protocol.api import ApiKey
from tests.broker.faults.asking import connected, metadata
from tests.broker.network.client import Client


def fault(times: int | None = None, removed: list[Fault] | None = None) -> Fault:
    told: list[Fault] = [] if removed is None else removed
    return Fault("a fault", threading.Condition(), times=times, on_remove=told.append)


def test_what_was_removed_hits_nothing_and_is_undone_once() -> None:
    removed: list[Fault] = []
    undone: list[str] = []
    with fault(None, removed) as endless:
        endless.undo = lambda: undone.append("undone")
        assert endless.hit()
    endless.remove()

    assert not endless.hit()
    assert (removed, undone, endless.hits) == ([endless], ["undone"], 1)


def test_what_is_forgotten_is_not_undone() -> None:
    gone = fault()
    undone: list[str] = []
    gone.undo = lambda: undone.append("undone")
    gone.forget()
    gone.remove()

    assert (gone.is_over, undone) == (True, [])


def test_waiting_ends_with_the_hit_that_is_waited_for() -> None:
    waited = fault()
    hitting = threading.Thread(target=lambda: [waited.hit() for _ in range(3)])
    hitting.start()
    waited.wait(3)
    hitting.join()

    assert waited.hits == 3


def test_waiting_in_vain_says_what_for() -> None:
    with pytest.raises(TimeoutError, match=r"timed out after 0.01 s waiting for 2 hits: a fault, hit 0 times"):
        fault().wait(2, timeout=0.01)


def test_requests_are_counted_by_api_and_broker(broker: EmbeddedBroker, client: Client) -> None:
    faults = broker.faults
    before = faults.seen(ApiKey.METADATA), faults.seen(ApiKey.METADATA, broker=2)
    metadata(client)
    with connected(broker, 2) as second:
        metadata(second)

    assert (faults.seen(ApiKey.METADATA), faults.seen(ApiKey.METADATA, broker=2)) == (before[0] + 2, before[1] + 1)


def test_a_watch_counts_what_another_fault_hits(broker: EmbeddedBroker, client: Client) -> None:
    first = broker.faults.watch(ApiKey.METADATA)
    with broker.faults.wrong_correlation_id(ApiKey.METADATA) as wrong:
        later = broker.faults.watch(ApiKey.METADATA)
        metadata(client)
        metadata(client)

    assert (first.hits, wrong.hits, later.hits) == (2, 1, 2)


def test_clear_removes_them_all(broker: EmbeddedBroker, client: Client) -> None:
    faults = broker.faults
    every = [
        faults.cut_before(ApiKey.METADATA),
        faults.disk_full(),
        faults.unreachable(1, black_hole=True),
        faults.hold_markers(),
    ]
    faults.clear()

    assert all(each.is_over for each in every)
    assert metadata(client).brokers
