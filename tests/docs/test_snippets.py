"""Each Python block of docs/ works as it stands there, and each command line is one that the command takes."""

from __future__ import annotations

import datetime
import itertools
import logging
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

import spark_kafka_sink
import spark_kafka_sink.broker
from spark_kafka_sink import Producer
from spark_kafka_sink.broker import EmbeddedBroker, EmbeddedRegistry
from spark_kafka_sink.cli.main import main
from tests.docs.snippets import LANGUAGES, PAGES, Program, blocks, python_blocks
from tests.kafka.witness import read_topic
from tests.registry.stand_in import StandIn
from tests.tiers import whole_but

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RUN = {page: [block for block in python_blocks(page) if block.reason is None] for page in PAGES}
WITH_SPARK = [page for page in PAGES if any(block.needs_spark for block in RUN[page])]
WITHOUT_STREAMS = [
    page for page in WITH_SPARK if page == "quickstart.md" or not any("writeStream" in block.source for block in RUN[page])
]
WITHOUT_SPARK = [page for page in PAGES if RUN[page] and page not in WITH_SPARK]


@pytest.fixture
def made() -> Iterator[ExitStack]:
    """Closes afterwards what the blocks of a page got."""
    with ExitStack() as stack:
        yield stack


MakeProgram = Callable[..., Program]


@pytest.fixture
def broker(made: ExitStack) -> EmbeddedBroker:
    broker = made.enter_context(EmbeddedBroker(2))
    broker.create_topic("events", partitions=3)
    return broker


@pytest.fixture
def program(
    broker: EmbeddedBroker, stand_in: StandIn, made: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> MakeProgram:
    monkeypatch.chdir(tmp_path)
    servers = broker.bootstrap_servers
    numbers = itertools.count(1)

    def topic(**wanted: Any) -> str:
        return broker.create_topic(f"topic-{next(numbers)}", **wanted)

    def make(**more: Callable[[], Any]) -> Program:
        given: dict[str, Callable[[], Any]] = {
            **{name: exported(spark_kafka_sink, name) for name in spark_kafka_sink.__all__},
            **{name: exported(spark_kafka_sink.broker, name) for name in spark_kafka_sink.broker.__all__ if name != "Producer"},
            "sks": lambda: spark_kafka_sink,
            "options": lambda: {"kafka.bootstrap.servers": servers, "topic": "events"},
            "path": lambda: str(tmp_path / "path"),
            "producer": lambda: made.enter_context(Producer({"bootstrap.servers": servers})),
            "dbutils": lambda: SimpleNamespace(secrets=SimpleNamespace(get=lambda scope, key: key)),
            **more,
        }
        kept = {name: lambda value=more[name]: value() for name in ("spark",) if name in more}
        return Program(
            servers,
            tmp_path,
            given,
            {
                "broker": lambda: broker,
                "kafka_broker": lambda: broker,
                "kafka_topic": lambda: topic,
                "kafka_schema_registry": lambda: made.enter_context(EmbeddedRegistry()),
                **kept,
            },
            stand_in.url,
        )

    return make


def exported(module: Any, name: str) -> Callable[[], Any]:
    return lambda: getattr(module, name)


@pytest.fixture(autouse=True)
def logging_is_restored() -> Iterator[None]:
    """A block may configure logging."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.parametrize("page", WITHOUT_SPARK)
def test_the_blocks_of_a_page_run(page: str, program: MakeProgram) -> None:
    running = program()
    for block in RUN[page]:
        running.run(block)


def test_the_columns_that_an_interceptor_changes_keep_their_fixed_headers(program: MakeProgram, broker: EmbeddedBroker) -> None:
    """What an interceptor raises is only logged, so the block runs in any case."""
    (block,) = (block for block in RUN["producer.md"] if "on_send_columns" in block.source)
    program().run(block)
    (record,) = read_topic(broker.bootstrap_servers, "events")
    assert (record.value, record.headers) == (b"************1111", (("source", b"shop"),))


@pytest.mark.spark
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", whole_but(WITH_SPARK, WITHOUT_STREAMS, "Spark takes about 10 s to start a stream"))
def test_the_blocks_of_a_page_run_with_spark(
    page: str, program: MakeProgram, broker: EmbeddedBroker, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    share(spark, monkeypatch)
    running = program(
        spark=lambda: spark,
        df=lambda: spark.range(20).selectExpr("id", "cast(id as string) as key", "cast(id as string) as value"),
        stream=lambda: spark.readStream.format("rate").load().selectExpr("cast(value as string) as value"),
        metrics=lambda: spark_kafka_sink.register(spark),
        letters=lambda: read_with_headers(spark, broker, "events-dead-letters"),
    )
    for block in RUN[page]:
        try:
            running.run(block)
            for query in spark.streams.active:
                until_it_wrote(query)
        finally:
            for query in spark.streams.active:
                query.stop()


def read_with_headers(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> DataFrame:
    """Returns a topic as Spark's own source does with includeHeaders."""
    rows = [
        (each.key, each.value, list(each.headers), datetime.datetime.fromtimestamp((each.timestamp or 0) / 1000, datetime.UTC))
        for each in read_topic(broker.bootstrap_servers, topic)
    ]
    return spark.createDataFrame(
        rows, "key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp"
    )


def share(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a block stop its session, which others use, and wait for a query that never ends: until it has written a batch."""
    from pyspark.sql.streaming.query import StreamingQuery as Query

    def await_termination(query: Query, timeout: float | None = None) -> None:
        until_it_wrote(query)
        if timeout is None:
            query.stop()

    monkeypatch.setattr(Query, "awaitTermination", await_termination)
    monkeypatch.setattr(type(spark), "stop", lambda session: None)


def until_it_wrote(query: StreamingQuery) -> None:
    while query.isActive and not any(progress["numInputRows"] for progress in query.recentProgress):
        query._jsq.awaitTermination(200)
    if error := query.exception():
        raise error


def test_nearly_all_blocks_are_run() -> None:
    found = [block for page in PAGES for block in python_blocks(page)]
    left_out = [f"{block}: {block.reason}" for block in found if block.reason is not None]

    assert len(found) > 30
    assert len(left_out) <= len(found) // 10, left_out


@pytest.mark.parametrize("page", PAGES)
def test_a_block_is_marked_with_a_known_language(page: str) -> None:
    assert [f"{block}: {block.language}" for block in blocks(page) if block.language not in LANGUAGES] == []


def commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """Yields each command line of a page, with its words."""
    for block in blocks(page):
        if block.language != "python":
            for line in block.source.replace("\\\n", " ").splitlines():
                text = line.removeprefix("$ ")
                # The usage of a command, in cli.md, is no command line.
                if text.startswith("spark-kafka-sink ") and "[OPTIONS]" not in text:
                    yield str(block), shlex.split(text, comments=True)[1:]


COMMANDS = [command for page in PAGES for command in commands(page)]


@pytest.mark.parametrize(("where", "words"), COMMANDS, ids=[f"{where} {' '.join(words)}" for where, words in COMMANDS])
def test_a_command_line_is_understood(where: str, words: list[str]) -> None:
    result = CliRunner().invoke(main, [*words, "--help"])
    assert result.exit_code == 0, result.output
