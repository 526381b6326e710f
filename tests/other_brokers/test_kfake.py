"""The sink on kfake, a Kafka that was written in Go by other people: rows, transactions, commits of batches, and the commands.

It needs Go, and fetches its modules once.
confluent-kafka reads what is there. What this finds is a reading of the protocol that two implementations do not share.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from spark_kafka_sink import Producer, RecordColumns
from spark_kafka_sink.cli.main import main
from spark_kafka_sink.errors import ProducerFencedError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from tests.exactly_once.opened import client_of
from tests.exactly_once.queries import Query
from tests.kafka.jars import cache_dir, locked
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic

pytestmark = [pytest.mark.whole("a compiler, and brokers that nobody runs"), pytest.mark.slow]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ROWS = 2_000
_numbers = itertools.count()
PROGRAM: Final = Path(__file__).with_name("kfake")
BUILD_DEADLINE_S: Final = 600
END_DEADLINE_S: Final = 20


class KfakeUnavailableError(RuntimeError):
    """Go is missing, or the program could not be built. The message has Go's output."""


def program() -> Path:
    """Returns the program, which is built once per content of its sources."""
    sources = [PROGRAM / name for name in ("go.mod", "go.sum", "main.go")]
    key = hashlib.sha256(b"".join(each.read_bytes() for each in sources)).hexdigest()[:16]
    built = cache_dir() / f"kfake-{key}"
    if not built.is_file():
        cache_dir().mkdir(parents=True, exist_ok=True)
        with locked(built.with_name(f"{built.name}.lock")):
            if not built.is_file():  # another process may have built it while this one waited
                _build(built)
    return built


def _build(target: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise KfakeUnavailableError("Go (go) is not on the PATH")
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    command = [go, "build", "-mod=readonly", "-o", str(partial), "."]
    environment = {**os.environ, "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            command, cwd=PROGRAM, env=environment, capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False
        )
        if done.returncode != 0:
            raise KfakeUnavailableError(f"go build failed:\n{done.stderr.strip()[-1500:]}")
        partial.rename(target)  # atomic: a program of this name is always whole
    except subprocess.TimeoutExpired:
        raise KfakeUnavailableError(f"go build did not end within {BUILD_DEADLINE_S} s") from None
    finally:
        partial.unlink(missing_ok=True)


class Kfake:
    """Three brokers that run from the constructor to the end of a `with`. They end with this process as well."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([program()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.bootstrap_servers = self._process.stdout.readline().strip()
        if not self.bootstrap_servers:
            self.stop()
            raise RuntimeError(f"kfake ended with exit code {self._process.returncode}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the process by the end of its input. Kills it if that does not suffice."""
        try:
            self._process.communicate(timeout=END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


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
        for value, end in [
            (b"committed", producer.commit_transaction),
            (b"aborted", producer.abort_transaction),
            (b"later", producer.commit_transaction),
        ]:
            producer.begin_transaction()
            producer.send(topic, value, partition=0).result(30)
            producer.send_offsets_to_transaction({(topic, 0): 7}, topic)
            end()
    kfake.wait_for(lambda: values(kfake, topic) == [b"committed", b"later"], "the commits", 30)
    assert values(kfake, topic, "read_uncommitted") == [b"committed", b"aborted", b"later"]


def test_the_second_producer_with_an_id_fences_the_first(kfake: Kafka, topic: str) -> None:
    settings = {"bootstrap.servers": kfake.bootstrap_servers, "transactional.id": topic}
    with Producer(settings) as first:
        first.init_transactions()
        first.begin_transaction()
        first.send(topic, b"of the first", partition=0).result(30)
        with Producer(settings) as second:
            second.init_transactions()
            second.begin_transaction()
            second.send(topic, b"of the second", partition=0)
            second.commit_transaction()
            with pytest.raises(ProducerFencedError):
                first.commit_transaction()
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
