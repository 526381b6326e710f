"""Faults that are given as text do what the methods of their names do."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.faults.fault_injection import FaultInjection
from spark_kafka_sink.broker.faults.fault_text import add_fault
from spark_kafka_sink.errors import OptionError
from tests.every import every


@every(
    "text, what",
    [
        ("produce error=NOT_LEADER_OR_FOLLOWER", "NOT_LEADER_OR_FOLLOWER for PRODUCE"),
        ("Produce error=not_leader_or_follower applied=true message=no", "NOT_LEADER_OR_FOLLOWER for PRODUCE"),
        ("produce error=999 times=3", "999 for PRODUCE"),
        (
            "LIST_OFFSETS error=-1 topic=a partition=2 client_id=c broker=1",
            "UNKNOWN_SERVER_ERROR for LIST_OFFSETS broker=1",
        ),
        ("ListOffsets delay=250", "250.0 ms of delay of LIST_OFFSETS"),
        ("produce throttle=500 times=all", "500 ms of throttling after PRODUCE"),
        ("fetch delay ms=5 times=all", "5.0 ms of delay of FETCH"),
        ("init-producer-id cut-before", "a cut before INIT_PRODUCER_ID"),
        ("produce cut-after times=2", "a cut after PRODUCE"),
        ("metadata truncate keep=3", "a truncated answer to METADATA"),
        ("metadata truncate=3", "a truncated answer to METADATA"),
        ("metadata wrong-correlation-id", "a wrong correlation id for METADATA"),
        ("disk-full topic=events", "a full disk of any request topic=events"),
        ("hold-markers", "transaction markers are held"),
        ("delay-markers ms=100", "transaction markers come 100.0 ms later"),
        ("delay-verification ms=120", "the verification of transactions takes 120.0 ms longer"),
    ],
)
def test_a_text_says_what_where_and_how_often(text: str, what: str) -> None:
    assert str(add_fault(FaultInjection([1]), text)).startswith(what)


def test_times_end() -> None:
    faults = FaultInjection([1])
    twice, endless, once = (add_fault(faults, f"produce error=7{times}") for times in (" times=2", " times=all", ""))

    assert [[each.hit() for _ in range(3)] for each in (twice, endless, once)] == [
        [True, True, False],
        [True, True, True],
        [True, False, False],
    ]


@every(
    "text, why",
    [
        ("", "unknown API ''"),
        ("prduce error=7", "unknown API 'prduce'; did you mean produce?"),
        ("produce", "fault 'produce' has no kind: add one of error, delay, throttle, cut-before"),
        ("produce eror=7", "unknown fault 'eror'; it must be one of error, delay"),
        ("produce error", "fail needs error="),
        ("produce error=NOT_LEADER", "unknown error NOT_LEADER; did you mean NOT_LEADER_OR_FOLLOWER?"),
        ("produce error=0", "0 is not an error code"),
        ("produce error=7 times=x", "fault 'produce error=7 times=x': 'x' is not a valid value"),
        ("produce error=7 applied=yes", "'yes' is not a valid value"),
        ("fetch delay=soon", "fault 'fetch delay=soon': 'soon' is not a valid value"),
        ("produce error=7 time=1", "unknown word 'time=1' in fault 'produce error=7 time=1'; did you mean times?"),
        ("produce error=7 broker=4", "there is no broker 4"),
        ("produce delay", "delay needs ms="),
        ("produce throttle", "throttle needs ms="),
        ("produce throttle=-1", "-1"),
        ("sasl-handshake throttle=5", "a response to SASL_HANDSHAKE has no throttle time"),
        ("disk-full times=3", "unknown word 'times=3'"),
    ],
)
def test_what_is_wrong_with_a_text_is_said(text: str, why: str) -> None:
    with pytest.raises(OptionError) as refused:
        add_fault(FaultInjection([1]), text)

    assert why in refused.value.message
