"""Names of queries that Spark knows, has forgotten, or does not tell."""

from __future__ import annotations

import uuid
from types import SimpleNamespace

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink.spark.driver.active_queries import MOST_NAMES, QueryNames


def test_a_name_is_kept_and_the_last_one_counts() -> None:
    names = QueryNames()
    names.learn("q", "clicks")
    names.learn("q", "orders")
    assert names.name("q") == names.name("q", active=()) == "orders"


def test_without_spark_a_name_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkSession, "_instantiatedSession", None)
    assert QueryNames().name(str(uuid.uuid4())) == ""


class Asked:
    """A session whose JVM has ended."""

    def __init__(self) -> None:
        self.times = 0

    @property
    def _jvm(self) -> None:
        self.times += 1
        raise RuntimeError("the JVM is gone")


def test_spark_is_not_asked_for_a_query_that_has_ended_nor_twice_for_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    session, names = Asked(), QueryNames()
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    assert names.name("ended", active=["another"]) == ""
    names.learn("unnamed", "")
    assert names.name("unnamed", active=["unnamed"]) == ""
    assert session.times == 0
    assert names.name("runs", active=["runs"]) == ""
    assert session.times == 1


class Running:
    """As much of a session and its JVM as the name of a query needs."""

    def __init__(self) -> None:
        self.names: dict[str, str | None] = {}
        self.times = 0

    def __getattr__(self, name: str) -> Running:
        return self

    def __call__(self) -> Running:
        return self

    def fromString(self, query_id: str) -> str:
        return query_id

    def get(self, query_id: str) -> SimpleNamespace | None:
        self.times += 1
        return SimpleNamespace(name=lambda: self.names[query_id]) if query_id in self.names else None


def test_a_query_that_starts_again_may_have_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    session, names = Running(), QueryNames()
    monkeypatch.setattr(SparkSession, "_instantiatedSession", session)
    for name, shown in ((None, ""), ("clicks", "clicks"), ("orders", "orders")):
        session.names["q"] = name
        assert names.name("q", active={"q"}) == names.name("q", active={"q"}) == names.name("q") == shown
        assert names.name("q", active=()) == shown
    assert session.times == 3
    session.names.clear()
    assert names.name("q") == "orders"


def test_the_oldest_names_are_forgotten() -> None:
    names = QueryNames()
    for number in range(MOST_NAMES + 1):
        names.learn(f"q{number}", f"name {number}")
    assert (names.name("q0", active=()), names.name("q1", active=())) == ("", "name 1")
