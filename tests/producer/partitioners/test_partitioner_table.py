"""The option partitioner.class and those that belong to it."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.producer.partitioners.partitioner_table import NAMES, partitioner_of
from tests.every import every
from tests.producer.partitioners.asking import ask, available, config

KEYS = pa.array([b"%d" % n for n in range(40)])


def chosen(name: str, **options: object) -> list[int]:
    return ask(partitioner_of(config(partitioner_class=name, **options), rng=random.Random(1)), KEYS, available(8))


@pytest.mark.parametrize(
    ("java", "short"),
    [
        ("org.apache.kafka.clients.producer.RoundRobinPartitioner", "round_robin"),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", "sticky"),
        ("sarama_hash", "sarama"),
    ],
)
def test_other_names_for_the_same(java: str, short: str) -> None:
    assert chosen(java) == chosen(short)


def test_the_default_partitioner_of_kafka_3_hashes_keys_and_sticks_without() -> None:
    name = "org.apache.kafka.clients.producer.internals.DefaultPartitioner"
    assert chosen(name) == ask(partitioner_of(config()), KEYS, available(8))
    without = partitioner_of(config(partitioner_class=name, batch_size=100))
    assert len(set(ask(without, 50, available(8)))) == 1


def test_keys_are_ignored_only_by_the_default() -> None:
    by_default = ask(partitioner_of(config(partitioner_ignore_keys="true")), KEYS, available(8))
    assert len(set(by_default)) == 1
    assert chosen("consistent", partitioner_ignore_keys="true") == chosen("consistent")


@every(
    "name, text",
    [
        ("consistant_random", "unknown partitioner; did you mean consistent_random?"),
        ("roundrobin", "did you mean round_robin?"),
        ("xyz", "xyz: unknown partitioner: omit the option for Java's default, or set it to one of random, consistent,"),
        ("org.apache.kafka.clients.producer.MyPartitioner", "this Java class has no equivalent here"),
        ("com.example.kafka.OrderPartitioner", "no module named 'com'"),
    ],
)
def test_an_unknown_name_is_refused_with_what_to_use(name: str, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        partitioner_of(config(partitioner_class=name))
    assert text in str(caught.value)
    assert caught.value.facts == {"option": "partitioner.class"}


@every("name", NAMES)
def test_a_known_name_is_enough(name: str) -> None:
    assert all(0 <= partition < 8 for partition in chosen(name))


def test_runs_are_no_longer_than_a_request_allows() -> None:
    by = partitioner_of(config(batch_size=10_000, max_request_size=1378, partitioner_ignore_keys="true"))
    assert len(set(ask(by, 10, available(2)))) == 1
    assert len(set(ask(by, 1, available(2))) | set(ask(by, 10, available(2)))) == 2
