"""publish_stream takes rows, files and Kafka records to Kafka, with the settings files as they are in conf/."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from jobs.outcome import ExitCode
from tests.jobs.job_process import CHECKOUT, JOB_DEADLINE_S, Ended, JobProcess
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import Witnessed, read_topic
from tests.waiting import until

KEPT = {
    "retention.ms": "-1"
}  # made-up rows have timestamps of 1970, and a broker looks for records older than a week at any time

pytestmark = pytest.mark.spark


class Stream:
    """A settings file of conf/, pointed at the tests' Kafka; everything that is there, then the end."""

    def __init__(self, jobs: JobProcess, kafka: Kafka, checkpoint: Path) -> None:
        self.jobs, self.kafka, self.checkpoint = jobs, kafka, checkpoint

    def run(self, conf: str, topic: str, *overrides: str, job: str = "publish_stream") -> Ended:
        return self.jobs.run(job, *self.arguments(conf, topic, *overrides))

    def arguments(self, conf: str, topic: str, *overrides: str) -> list[object]:
        here = (
            f"sink.kafka.bootstrap.servers={self.kafka.bootstrap_servers}",
            f"sink.topic={topic}",
            f"query.checkpoint={self.checkpoint}",
            "query.trigger=availableNow",
        )
        sets = [argument for override in (*here, *overrides) for argument in ("--set", override)]
        return [CHECKOUT / "conf" / f"{conf}.toml", *sets]

    def read(self, topic: str) -> list[Witnessed]:
        return read_topic(self.kafka.bootstrap_servers, topic)


@pytest.fixture
def stream(jobs: JobProcess, kafka: Kafka, tmp_path: Path) -> Stream:
    return Stream(jobs, kafka, tmp_path / "checkpoint")


def write_lines(file: Path, ids: range) -> None:
    rows = ({"id": i, "customer": f"c{i % 7}", "amount": "1.50", "at": "2026-01-01T00:00:00.123Z"} for i in ids)
    file.write_text("\n".join(map(json.dumps, rows)))


def committed(out: str) -> int:
    *_, found = re.findall(r"^committed so far: ([0-9,]+) records", out, re.MULTILINE)
    return int(found.replace(",", ""))


@pytest.mark.whole("three runs of the job")
def test_each_run_over_a_folder_takes_what_came_since_the_last(stream: Stream, new_topic: NewTopic, tmp_path: Path) -> None:
    topic, folder = new_topic(2, config=KEPT), tmp_path / "in"
    folder.mkdir()
    write_lines(folder / "first.json", range(30))
    first = stream.run("publish_files", topic, f"source.path={folder}")
    write_lines(folder / "second.json", range(30, 50))
    second = stream.run("publish_files", topic, f"source.path={folder}")

    assert (first.code, second.code) == (ExitCode.OK, ExitCode.OK)
    # Other jobs of this process may have committed before.
    assert committed(first.out) >= 30
    assert committed(second.out) == committed(first.out) + 20
    records = stream.read(topic)
    assert sorted(json.loads(record.value or b"")["id"] for record in records) == list(range(50))
    assert {record.timestamp for record in records} == {1_767_225_600_123}
    verified = stream.run("publish_files", topic, f"source.path={folder}", "spark.sql.session.timeZone=UTC", job="verify_topic")
    assert verified.code == ExitCode.OK, verified.out


def test_made_up_rows_become_records_with_keys_and_headers(stream: Stream, new_topic: NewTopic) -> None:
    topic = new_topic(1, config=KEPT)
    ended = stream.run("publish_rate", topic, "source.format=rate-micro-batch", "source.options.rowsPerBatch=120")

    assert ended.code == ExitCode.OK, ended.err
    records = stream.read(topic)
    assert sorted(record.key or b"" for record in records) == sorted(b"%d" % (number % 100) for number in range(120))
    assert {record.headers for record in records} == {(("source", b"rate"),)}


@pytest.mark.whole("30 s, and an example: nothing else reads Kafka in a job")
def test_records_of_one_topic_go_to_another_as_they_are(stream: Stream, new_topic: NewTopic) -> None:
    source, target = new_topic(2, config=KEPT), new_topic(2, config=KEPT)
    made = stream.run("publish_rate", source, "source.format=rate-micro-batch", "source.options.rowsPerBatch=80")
    stream.checkpoint = stream.checkpoint.with_name("copy")
    copied = stream.run(
        "publish_kafka",
        target,
        f"source.options.kafka.bootstrap.servers={stream.kafka.bootstrap_servers}",
        f"source.options.subscribe={source}",
    )

    assert (made.code, copied.code) == (ExitCode.OK, ExitCode.OK), copied.err
    assert stream.read(target) == stream.read(source)
    assert len(stream.read(target)) == 80


def test_sigterm_stops_the_query_and_the_report_comes_last(stream: Stream, new_topic: NewTopic) -> None:
    """To Java, which under spark-submit is the process that a scheduler knows."""
    topic = new_topic(1)
    stream.jobs.start("publish_stream", *stream.arguments("publish_rate", topic, "query.trigger=500 milliseconds"))
    try:
        first = until(lambda: len(stream.read(topic)), bool, "rows", JOB_DEADLINE_S)
        until(lambda: len(stream.read(topic)), lambda count: count > first, "rows of the next micro-batch", JOB_DEADLINE_S)
    finally:
        stream.jobs.jvm.terminate()
        ended = stream.jobs.wait("publish_stream")

    assert ended.code == ExitCode.TERMINATED, ended.err
    assert topic in ended.out[ended.out.rindex("committed so far: ") :]
    assert committed(ended.out) > 0
    assert ended.out.endswith("stopped by SIGTERM; the next run goes on from the checkpoint\n")
