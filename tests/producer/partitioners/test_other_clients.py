"""Keys go where Java's client, librdkafka and Sarama would send them, judged by what each of those itself says of 12,000 keys."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import confluent_kafka
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from spark_kafka_sink.producer.partitioners.key_hash import murmur2
from spark_kafka_sink.producer.partitioners.keyless import RoundRobinPartitioner, load_stats
from spark_kafka_sink.producer.partitioners.partitioner_table import partitioner_of
from tests.kafka.jars import jars
from tests.kafka.java import java
from tests.producer.partitioners.asking import ask, available, config
from tests.producer.partitioners.golden_keys import COUNTS, JAVA, KEYS, PROGRAM, SARAMA, golden, golden_keys, numbers, summary

JAVAS = [None, "murmur2", "murmur2_random", "org.apache.kafka.clients.producer.internals.DefaultPartitioner"]
SARAMAS = {"sarama": "hash", "sarama_hash": "hash", "sarama_reference": "reference_hash", "consistent": "consistent_crc"}
LIBRDKAFKAS = ["consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"]


def ours(name: str | None, keys: pa.Array, count: int) -> list[int]:
    by = partitioner_of(config() if name is None else config(partitioner_class=name))
    return ask(by, keys, available(count))


def test_murmur2_is_javas() -> None:
    assert [summary(murmur2(golden_keys()))] == golden(JAVA, "hash")


@pytest.mark.parametrize("name", JAVAS)
def test_a_key_goes_where_java_sends_it(name: str | None) -> None:
    ours_ = [[str(count), *summary(np.array(ours(name, golden_keys(), count), np.int32))] for count in COUNTS]
    assert ours_ == golden(JAVA, "keyed")


def test_round_robin_goes_round_as_javas() -> None:
    for count, leaderless, chosen in golden(JAVA, "round_robin"):
        cluster = available(int(count), *numbers(leaderless))
        assert ask(RoundRobinPartitioner(), 20, cluster) == numbers(chosen)


def test_the_weights_of_queues_are_javas() -> None:
    for count, partitions, sizes, table in golden(JAVA, "load"):
        stats = load_stats(numbers(partitions), numbers(sizes), int(count))
        assert ([] if stats is None else stats.cumulative.tolist()) == numbers(table)


@pytest.mark.whole("starts Java, whose golden file changes with its release only; the others here compare with that file")
@pytest.mark.java
def test_the_golden_file_is_what_java_prints() -> None:
    command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(jars() / "*"), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == JAVA.read_text()


@pytest.mark.parametrize("name", SARAMAS)
def test_a_key_goes_where_sarama_sends_it(name: str) -> None:
    ours_ = [[str(count), *summary(np.array(ours(name, golden_keys(), count), np.int32))] for count in COUNTS]
    assert ours_ == golden(SARAMA, SARAMAS[name])


@pytest.fixture(scope="module")
def librdkafka() -> ctypes.CDLL:
    """The library in the wheel of confluent-kafka, which has been loaded with it."""
    (path,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*.so*")
    return ctypes.CDLL(str(path))


def partitioner_in(library: ctypes.CDLL, name: str) -> Callable[[bytes | None, int], int]:
    """rd_kafka_msg_partitioner_*: of topic, key, its length, the number of partitions, and two pointers that none uses."""
    function = getattr(library, f"rd_kafka_msg_partitioner_{name}")
    function.restype = ctypes.c_int32
    pointer = ctypes.c_void_p
    function.argtypes = [pointer, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32, pointer, pointer]
    return lambda key, count: function(None, key, len(key or b""), count, None, None)


@pytest.mark.parametrize("name", LIBRDKAFKAS)
def test_a_key_goes_where_librdkafka_sends_it(librdkafka: ctypes.CDLL, name: str) -> None:
    theirs = partitioner_in(librdkafka, name)
    keys = golden_keys().filter(pc.not_equal(golden_keys(), pa.scalar(b"")))  # to some of them that is no key
    assert len(keys) > 0.99 * KEYS
    for count in COUNTS:
        assert ours(name, keys, count) == [theirs(key, count) for key in keys.to_pylist()]


@pytest.mark.parametrize("name", ["consistent", "murmur2", "fnv1a"])
def test_no_key_and_an_empty_one_go_where_librdkafka_sends_them(librdkafka: ctypes.CDLL, name: str) -> None:
    theirs = partitioner_in(librdkafka, name)
    keys = pa.array([None, b"", None], pa.binary())
    for count in COUNTS:
        assert ours(name, keys, count) == [theirs(None, count), theirs(b"", count), theirs(None, count)]
        assert ask(partitioner_of(config(partitioner_class=name)), 2, available(count)) == [theirs(None, count)] * 2


@pytest.mark.parametrize("name", ["murmur2_random", "fnv1a_random"])
def test_an_empty_key_is_a_key_as_in_librdkafka(librdkafka: ctypes.CDLL, name: str) -> None:
    theirs = partitioner_in(librdkafka, name)
    assert ours(name, pa.array([b""] * 50), 1000) == [theirs(b"", 1000)] * 50
