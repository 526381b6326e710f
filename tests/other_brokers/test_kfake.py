"""The sink on kfake, a Kafka that was written in Go by other people: rows, transactions, commits of batches, and the commands.

confluent-kafka reads what is there. What this finds is a reading of the protocol that two implementations do not share.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from spark_kafka_sink import Producer, RecordColumns
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.errors import ProducerFencedError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from tests.exactly_once.opened import client_of
from tests.exactly_once.queries import Query
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.other_brokers.kfake_cluster import Kfake, KfakeUnavailableError, program

pytestmark = [pytest.mark.whole("a compiler, and brokers that nobody runs"), pytest.mark.slow]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = 2_000
_numbers = itertools.count()


@pytest.fixture(scope="module")
def kfake() -> Iterator[Kafka]:
    try:
        program()
    except KfakeUnavailableError as error:
        pytest.skip(f"kfake is not available: {error}")
    with Kfake() as running:
        yield Kafka(running.bootstrap_servers)


@pytest.fixture
def topic(kfake: Kafka) -> str:
    return kfake.create_topic(f"topic-{next(_numbers)}", 3)


def values(kafka: Kafka, topic: str, isolation_level: str = "read_committed") -> list[bytes | None]:
    return [each.value for each in read_topic(kafka.bootstrap_servers, topic, isolation_level=isolation_level)]


@pytest.mark.parametrize("codec", CODECS)
def test_rows_arrive_once_and_in_order(kfake: Kafka, topic: str, codec: str) -> None:
    settings = {"bootstrap.servers": kfake.bootstrap_servers, "compression.type": codec, "batch.size": 2_000}
    keys, numbers = pa.array([str(number % 50) for number in range(ROWS)]), pa.array([str(number) for number in range(ROWS)])
    with Producer(settings) as producer, producer.scope() as scope:
        scope.append(topic, RecordColumns(ROWS, key=keys, value=numbers))
        scope.flush()
    by_key = dict[bytes | None, list[int]]()
    for record in read_topic(kfake.bootstrap_servers, topic):
        by_key.setdefault(record.key, []).append(int(record.value or b"-1"))
    assert by_key == {str(key).encode(): list(range(key, ROWS, 50)) for key in range(50)}


def test_what_is_committed_is_visible_and_what_is_aborted_is_not(kfake: Kafka, topic: str) -> None:
    with Producer({"bootstrap.servers": kfake.bootstrap_servers, "transactional.id": topic}) as producer:
        producer.init_transactions()
        for value, end in [(b"committed", producer.commit), (b"aborted", producer.abort), (b"later", producer.commit)]:
            producer.begin()
            producer.send(topic, value, partition=0).result(30)
            producer.send_offsets({(topic, 0): 7}, topic)
            end()
    kfake.wait_for(lambda: values(kfake, topic) == [b"committed", b"later"], "the commits", 30)
    assert values(kfake, topic, "read_uncommitted") == [b"committed", b"aborted", b"later"]


def test_the_second_producer_with_an_id_fences_the_first(kfake: Kafka, topic: str) -> None:
    settings = {"bootstrap.servers": kfake.bootstrap_servers, "transactional.id": topic}
    with Producer(settings) as first:
        first.init_transactions()
        first.begin()
        first.send(topic, b"of the first", partition=0).result(30)
        with Producer(settings) as second:
            second.init_transactions()
            second.begin()
            second.send(topic, b"of the second", partition=0)
            second.commit()
            with pytest.raises(ProducerFencedError):
                first.commit()
    kfake.wait_for(lambda: values(kfake, topic) == [b"of the second"], "the second's commit", 30)


def test_batches_are_committed_once_and_those_of_lost_tasks_are_aborted(kfake: Kafka) -> None:
    topic = kfake.create_topic(f"topic-{next(_numbers)}")
    with client_of(kfake) as client:
        query = Query(kfake, client, topic, f"commits-{next(_numbers)}")
        query.committer().check(MicroBatch.of_new_job(), 30)
        assert query.run(0, "a", "b").rows == 2
        assert query.run(0, "b", "a").rows == 0  # the same batch again, as after a crash
        query.write("lost", batch=1)
        report = query.run(1, "c")
        assert (report.rows, report.aborted) == (1, 1)
        assert query.open_ids() == []
        query.expect("a", "b", "c")


def run(kafka: Kafka, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments, "--bootstrap-servers", kafka.bootstrap_servers])


def test_the_commands_work(kfake: Kafka, topic: str) -> None:
    with Producer({"bootstrap.servers": kfake.bootstrap_servers}) as producer:
        producer.send(topic, b"a row")
    checked = run(kfake, "check", "--topic", topic, "--set", "delivery.guarantee=exactly-once")
    assert checked.exit_code == 0, checked.output
    assert "the brokers support it" in checked.stdout
    assert topic in run(kfake, "topics", "list").stdout
    assert "a row" in run(kfake, "topics", "tail", topic).stdout
    assert run(kfake, "transactions", "list").exit_code == 0
