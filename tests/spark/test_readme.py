"""What the README shows works as it stands there: every block of Python in it is run, on real Kafka."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from spark_kafka_sink import register
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import Witnessed, read_topic

pytestmark = pytest.mark.spark

README = Path(__file__).parents[2] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


class Readme:
    """Its blocks, with a topic and a folder of ours in the place of those that they name."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self.servers = servers
        self.topic = topic
        self._folder = folder
        self.names: dict[str, Any] = {}

    def run(self, word: str) -> None:
        """The one block in which `word` stands."""
        (block,) = (block for block in BLOCKS if word in block)
        text = block.replace("localhost:9092", self.servers).replace('"events"', f'"{self.topic}"')
        text = text.replace("checkpoints/", f"{self._folder}/")
        exec(compile(text, str(README), "exec"), self.names)

    def records(self) -> list[Witnessed]:
        return read_topic(self.servers, self.topic, isolation_level="read_committed")


@pytest.fixture
def readme(kafka: Kafka, new_topic: NewTopic, tmp_path: Path) -> Readme:
    return Readme(kafka.bootstrap_servers, new_topic(3), tmp_path)


def test_there_are_these_blocks_and_no_others() -> None:
    assert len(BLOCKS) == 8


# It starts two streams, which share two cores with everything else.
@pytest.mark.timeout(300)
def test_spark(readme: Readme, spark: SparkSession) -> None:
    readme.run("SparkSession.builder")
    queries = spark.streams.active
    try:
        assert len(queries) == 2
        for query in queries:
            until_it_wrote(query)
    finally:
        for query in queries:
            query.stop()
    keys = [record.key for record in readme.records()]
    assert [keys.count(b"%d" % number) for number in range(1000)] == [3] * 1000  # save, publish, partition_writer
    assert keys.count(None) > 0  # the streams
    assert readme.names["report"].total.records == 1000
    readme.run("metrics.live  #")


def until_it_wrote(query: StreamingQuery) -> None:
    deadline = time.monotonic() + 120
    while not any(progress["numInputRows"] for progress in query.recentProgress):
        assert not query.awaitTermination(1), query.exception()
        assert time.monotonic() < deadline


@pytest.mark.timeout(300)
def test_exactly_once(readme: Readme, spark: SparkSession) -> None:
    df = spark.range(100).selectExpr("cast(id as string) as key", "'v' as value")
    readme.names |= {"df": df, "stream": spark.readStream.format("rate").load().selectExpr("cast(value as string) as value")}
    readme.names["options"] = {"kafka.bootstrap.servers": readme.servers, "topic": readme.topic}
    register(spark).close()
    readme.run('"exactly-once"')
    (query,) = spark.streams.active
    try:
        until_it_wrote(query)
    finally:
        query.stop()
    keys = [record.key for record in readme.records()]
    assert sorted(key for key in keys if key is not None) == sorted(b"%d" % number for number in range(100))
    assert keys.count(None) > 0


def test_in_transactions(readme: Readme) -> None:
    readme.run("init_transactions")
    (record,) = readme.records()
    assert (record.key, record.value) == (b"a", b"both")


def test_one_record_at_a_time(readme: Readme, capsys: pytest.CaptureFixture[str]) -> None:
    readme.run("on_delivery")
    (record,) = readme.records()
    assert (record.key, record.value, record.headers) == (b"a", b'{"id":1,"paid":true}', (("source", b"web"),))
    assert capsys.readouterr().out.splitlines()[1:] == ["0", "1.0"]


def test_columns(readme: Readme, capsys: pytest.CaptureFixture[str]) -> None:
    readme.run("scope.append")
    assert sorted((record.key, record.value) for record in readme.records()) == [(b"a", b"1"), (b"b", b"2")]
    assert "records=2" in capsys.readouterr().out


def test_what_is_plugged_in(readme: Readme) -> None:
    readme.run("class Upper")
    (record,) = readme.records()
    assert (record.partition, record.value, record.headers) == (0, b"SHOUT", (("trace", b"1"),))


def test_a_broker_without_installing_kafka(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Readme("", "events", tmp_path).run("EmbeddedBroker")
    assert capsys.readouterr().out == "0 2\n"
