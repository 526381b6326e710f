"""A query's transactional ids are its own, whatever other queries with the same prefix are called."""

from __future__ import annotations

import pytest

from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds

IDS = TransactionalIds("sink", "5f0e-1")


def test_it_owns_the_ids_of_its_tasks() -> None:
    assert IDS.for_slot("0af9", 12) == "sink.5f0e-1.0af9.12"
    assert IDS.owns(IDS.for_slot("0af9", 12))


@pytest.mark.parametrize(
    "other",
    [
        IDS.commit_log,
        TransactionalIds("sink", "5f0e-11").for_slot("0af9", 0),
        TransactionalIds("sink2", "5f0e-1").for_slot("0af9", 0),
        TransactionalIds("a.sink", "5f0e-1").for_slot("0af9", 0),
        "sink.5f0e-1",
        "sink.5f0e-1.0af9",
        "sink.5f0e-1.0af9.",
        "sink.5f0e-1.0af9.1.2",
        "sink.5f0e-1.0AF9.1",
        "sink.5f0e-1..1",
        "",
    ],
)
def test_it_owns_no_other(other: str) -> None:
    assert not IDS.owns(other)
