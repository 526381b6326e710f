"""Programs that end without closing their producer."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent

import pytest

from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.tiers import whole_but

pytestmark = pytest.mark.slow

SENDING = """
    from spark_kafka_sink import Producer
    producer = Producer({{"bootstrap.servers": {servers!r}, "linger.ms": {linger}}})
    for number in range(3):
        producer.send({topic!r}, b"%d" % number)
    {end}
"""


def ended(kafka: Kafka, topic: str, end: str, linger: int = 60_000) -> subprocess.CompletedProcess[str]:
    program = dedent(SENDING).format(servers=kafka.bootstrap_servers, topic=topic, linger=linger, end=end)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        pytest.param("pass", 0, marks=pytest.mark.whole("a process; kept or deleted, a producer ends alike")),
        ("del producer", 0),
        ("raise SystemExit(3)", 3),
    ],
)
def test_records_of_a_producer_that_was_not_closed_are_sent_and_told_of(
    kafka: Kafka, new_topic: NewTopic, end: str, code: int
) -> None:
    topic = new_topic(1)
    program = ended(kafka, topic, end)
    assert program.returncode == code
    assert "the program exits with 3 unacknowledged records in a producer that was not closed" in program.stderr
    assert [record.value for record in read_topic(kafka.bootstrap_servers, topic)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    "end", whole_but(["producer.close()", "producer.flush()"], ["producer.flush()"], "a process; closed is less than flushed")
)
def test_a_program_that_has_nothing_left_to_send_ends_in_silence(kafka: Kafka, new_topic: NewTopic, end: str) -> None:
    program = ended(kafka, new_topic(1), end, linger=0)
    assert (program.returncode, program.stderr) == (0, "")
