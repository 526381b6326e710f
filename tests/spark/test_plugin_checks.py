"""Plug-ins that options name are checked on the driver."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.producer.interceptors import ProducerInterceptor
from spark_kafka_sink.spark.plugin_checks import checked_options

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


class Interceptor(ProducerInterceptor):
    told: ClassVar[list[str]] = []

    def configure(self, settings: Mapping[str, object]) -> None:
        self.told.append("configured")

    def close(self) -> None:
        self.told.append("closed")


NAME = f"{Interceptor.__module__}.{Interceptor.__qualname__}"


def test_plugins_are_taken_as_the_producer_takes_them() -> None:
    producer = checked_options(
        {**SERVERS, "kafka.key.serializer": "long", "kafka.interceptor.classes": f"{NAME}, {NAME}"}
    ).producer
    assert (producer.key_serializer, producer.interceptor_classes) == ("long", (NAME, NAME))


@pytest.mark.parametrize(
    ("name", "text"),
    [("no.such.Class", "no module named 'no'"), ("logging.Logger", "failed"), ("collections.Counter", "must inherit")],
)
def test_an_interceptor_that_cannot_be_had_is_refused_in_the_driver(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=rf"^\[OPTION\] option kafka\.interceptor\.classes: {re.escape(name)}.*{text}"):
        checked_options({**SERVERS, "kafka.interceptor.classes": f"{NAME},{name}"})


def test_the_driver_closes_the_interceptors_that_it_made_and_leaves_a_programs_object_alone() -> None:
    Interceptor.told.clear()
    checked_options({**SERVERS, "kafka.interceptor.classes": [Interceptor(), Interceptor]})
    assert Interceptor.told == ["configured", "closed"]


def test_an_interceptor_that_no_producer_can_be_found_by_is_named() -> None:
    class Unhashable(ProducerInterceptor):
        __hash__ = None  # type: ignore[assignment]

    with pytest.raises(OptionError, match=r"option kafka\.interceptor\.classes: Unhashable has no __hash__"):
        checked_options({**SERVERS, "kafka.interceptor.classes": [Interceptor(), Unhashable()]})


@pytest.mark.parametrize(
    ("name", "text"),
    [("roundrobin", r".* did you mean round_robin\?"), ("my.Partitioner", "my.Partitioner: no module named 'my'")],
)
def test_a_partitioner_that_cannot_be_had_is_refused_in_the_driver(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=rf"option kafka\.partitioner\.class: {text}") as caught:
        checked_options({**SERVERS, "kafka.partitioner.class": name})
    assert caught.value.facts["option"] == "kafka.partitioner.class"


def test_a_partitioner_goes_to_the_tasks_by_its_name_or_as_the_object_it_is() -> None:
    class Unused:
        def configure(self, settings: object) -> None:
            raise AssertionError("it is for the tasks to configure")

    for value in ("sarama", Unused()):
        assert checked_options({**SERVERS, "kafka.partitioner.class": value}).producer.partitioner_class is value
