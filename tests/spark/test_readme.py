"""The blocks of Python in the README and in docs/producer.md work as they stand there, on real Kafka."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import Witnessed, read_topic
from tests.waiting import until

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PRODUCER = ROOT / "docs" / "producer.md"
BLOCKS = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Readme:
    """The blocks of a page, with a topic and a folder of ours in the place of those that they name."""

    def __init__(self, servers: str, topic: str, folder: Path) -> None:
        self.servers = servers
        self.topic = topic
        self._folder = folder
        self.names: dict[str, Any] = {}

    def run(self, word: str, page: Path = README) -> None:
        """Runs the one block in which `word` stands."""
        (block,) = (block for block in BLOCKS.findall(page.read_text(encoding="utf-8")) if word in block)
        text = block.replace("localhost:9092", self.servers).replace('"events"', f'"{self.topic}"')
        text = text.replace("checkpoints/", f"{self._folder}/")
        exec(compile(text, str(page), "exec"), self.names)

    def records(self) -> list[Witnessed]:
        return read_topic(self.servers, self.topic, isolation_level="read_committed")


@pytest.fixture
def readme(kafka: Kafka, new_topic: NewTopic, tmp_path: Path) -> Readme:
    return Readme(kafka.bootstrap_servers, new_topic(3), tmp_path)


@pytest.mark.parametrize(("page", "blocks", "lines"), [(README, 3, 120), (PRODUCER, 7, 220)])
def test_there_are_these_blocks_and_no_others(page: Path, blocks: int, lines: int) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(BLOCKS.findall(text)) == blocks
    assert text.count("\n") <= lines


# It starts a stream, which shares two cores with everything else.
@pytest.mark.timeout(300)
@pytest.mark.usefixtures("spark")
def test_the_quick_start_writes_a_stream_a_batch_and_from_a_notebook(readme: Readme) -> None:
    readme.run("SparkSession.builder")
    query = readme.names["query"]
    try:
        until_it_wrote(query)
    finally:
        query.stop()
    readme.run("spark.range")
    readme.run("sks.publish")
    expected = {b"%d" % number: 2 for number in range(1000)}
    keys = until(lambda: Counter(each.key for each in readme.records()), lambda found: expected.items() <= found.items(), "rows")
    assert keys[None] > 0  # the stream


def until_it_wrote(query: StreamingQuery) -> None:
    while not any(progress["numInputRows"] for progress in query.recentProgress):
        assert not query.awaitTermination(1), query.exception()


def test_in_transactions(readme: Readme) -> None:
    readme.run("init_transactions", PRODUCER)
    (record,) = until(readme.records, bool, "the record")  # EndTxn is answered before its markers are there
    assert (record.key, record.value) == (b"a", b"both")


def test_one_record_at_a_time(readme: Readme, capsys: pytest.CaptureFixture[str]) -> None:
    readme.run("on_completion", PRODUCER)
    (record,) = readme.records()
    assert (record.key, record.value, record.headers) == (b"a", b'{"id":1,"paid":true}', (("source", b"web"),))
    assert capsys.readouterr().out.splitlines()[1:] == ["0", "1.0"]


def test_in_asyncio(readme: Readme) -> None:
    readme.run("asyncio.run", PRODUCER)
    assert sorted(record.value or b"" for record in readme.records()) == sorted(b"value %d" % number for number in range(100))


def test_columns(readme: Readme, capsys: pytest.CaptureFixture[str]) -> None:
    readme.run("scope.report", PRODUCER)
    assert sorted((record.key, record.value) for record in readme.records()) == [(b"a", b"1"), (b"b", b"2")]
    assert "records     2\n" in capsys.readouterr().out


def test_what_is_plugged_in(readme: Readme) -> None:
    readme.run("class Upper", PRODUCER)
    (record,) = readme.records()
    assert (record.partition, record.value, record.headers) == (0, b"SHOUT", (("trace", b"1"),))
