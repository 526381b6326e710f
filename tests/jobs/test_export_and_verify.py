"""export_batch writes what verify_topic then finds, and verify_topic finds what somebody else changed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from confluent_kafka import Producer

from jobs.outcome import ExitCode
from spark_kafka_sink.verify.comparison import partition_of
from tests.jobs.conftest import ROWS
from tests.jobs.job_process import CHECKOUT, Ended, JobProcess
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic

pytestmark = pytest.mark.spark

PARTITIONS = 3
KEPT = {"retention.ms": "-1"}  # the events are of last winter, and a broker looks for records older than a week at any time


class Topic:
    """Both jobs with the same settings, on one topic."""

    def __init__(self, jobs: JobProcess, kafka: Kafka, name: str, folder: Path) -> None:
        self.jobs, self.kafka, self.name = jobs, kafka, name
        self.file = folder / "job.toml"
        self.file.write_text(
            f'[source]\nformat = "parquet"\n[sink]\nkafka.bootstrap.servers = "{kafka.bootstrap_servers}"\ntopic = "{name}"\n'
        )

    def run(self, job: str, source: Path, *overrides: str) -> Ended:
        sets = [argument for override in (f"source.path={source}", *overrides) for argument in ("--set", override)]
        return self.jobs.run(job, self.file, *sets)

    def produce(self, partition: int, key: bytes | None, value: bytes | None, timestamp: int) -> None:
        """Another producer's record, without headers."""
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap_servers})
        producer.produce(self.name, partition=partition, key=key, value=value, timestamp=timestamp)
        assert producer.flush(30) == 0


@pytest.fixture
def topic(jobs: JobProcess, kafka: Kafka, new_topic: NewTopic, tmp_path: Path) -> Topic:
    return Topic(jobs, kafka, new_topic(PARTITIONS, config=KEPT), tmp_path)


@pytest.fixture
def one_line(tmp_path: Path) -> Path:
    source = tmp_path / "line.json"
    source.write_text(json.dumps({"key": "k", "value": "v"}))
    return source


def test_what_was_exported_is_found_and_lost_repeated_and_foreign_records_are_told_apart(
    topic: Topic, events: Path, fewer_events: Path
) -> None:
    exported = topic.run("export_batch", fewer_events)
    verified = topic.run("verify_topic", fewer_events)
    assert exported.code == ExitCode.OK, exported.err
    assert re.search(rf"^records +{ROWS - 1:,}$", exported.out, re.MULTILINE)
    assert verified.code == ExitCode.OK, verified.err
    assert f"topic {topic.name}: as the source has it" in verified.out
    assert "compared: key, value, headers, timestamp, partition\n" in verified.out
    assert f"{ROWS - 1:,} records expected, {ROWS - 1:,} found: 0 missing, 0 duplicated, 0 unexpected" in verified.out
    plain = next(r for r in read_topic(topic.kafka.bootstrap_servers, topic.name) if not r.headers and r.key and r.timestamp)
    topic.produce(plain.partition, plain.key, plain.value, plain.timestamp or 0)
    topic.produce(0, None, b"from elsewhere", 1_700_000_000_000)
    verified = topic.run("verify_topic", events)
    assert verified.code == ExitCode.DIFFERENCE
    assert f"topic {topic.name}: DIFFERENT from the source" in verified.out
    assert f"{ROWS:,} records expected, {ROWS + 1:,} found: 1 missing, 1 duplicated, 1 unexpected" in verified.out
    assert "expected 1, found 0: key=b'customer-" in verified.out
    assert "expected 1, found 2: key=b'customer-" in verified.out
    assert "expected 0, found 1: key=None, value=b'from elsewhere', headers=[], timestamp=1700000000000" in verified.out


@pytest.mark.whole("a Spark job; lost, repeated and foreign records stay")
def test_records_written_twice_are_a_difference_unless_they_are_allowed(topic: Topic, one_line: Path) -> None:
    for _ in range(2):
        topic.produce(partition_of(b"k", PARTITIONS), b"k", b"v", 1)

    verified = topic.run("verify_topic", one_line, "source.format=json")

    assert verified.code == ExitCode.DIFFERENCE
    assert "0 missing, 1 duplicated, 0 unexpected" in verified.out
    assert topic.run("verify_topic", one_line, "source.format=json", "verify.allow_duplicates=true").code == ExitCode.OK


@pytest.mark.whole("a Spark job; lost, repeated and foreign records stay")
def test_a_record_in_another_partition_than_its_key_says_is_a_difference(topic: Topic, one_line: Path) -> None:
    topic.produce((partition_of(b"k", PARTITIONS) + 1) % PARTITIONS, b"k", b"v", 1)

    verified = topic.run("verify_topic", one_line, "source.format=json")

    assert verified.code == ExitCode.DIFFERENCE
    assert "not compared: timestamp, because the source has none" in verified.out
    assert "1 missing, 0 duplicated, 1 unexpected" in verified.out
    assert topic.run("verify_topic", one_line, "source.format=json", "verify.columns=key, value").code == ExitCode.OK


@pytest.mark.whole("20 s")
def test_the_settings_file_for_exports_works_as_it_is(topic: Topic, tmp_path: Path) -> None:
    source = tmp_path / "lines.json"
    source.write_text("\n".join(json.dumps({"id": number, "name": f"n{number}"}) for number in range(20)))
    topic.file = CHECKOUT / "conf" / "export_batch.toml"
    here = (f"sink.kafka.bootstrap.servers={topic.kafka.bootstrap_servers}", f"sink.topic={topic.name}", "source.format=json")

    assert topic.run("export_batch", source, *here).code == ExitCode.OK
    records = read_topic(topic.kafka.bootstrap_servers, topic.name)
    assert {record.key: record.value for record in records} == {
        b"%d" % number: b'{"id":%d,"name":"n%d"}' % (number, number) for number in range(20)
    }
