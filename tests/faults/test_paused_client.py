"""A producer's process stands still for longer than the request timeout, as a virtual machine does that is moved."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress

import pytest

from tests.faults.numbered_stream import assert_each_once_in_order
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.witness import read_topic

REQUEST_TIMEOUT_MS = 500
PAUSE_S = 0.8
COUNT = 600

PROGRAM = f"""
import sys
import pyarrow
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
servers, topic = sys.argv[1:]
settings = {{"bootstrap.servers": servers, "request.timeout.ms": {REQUEST_TIMEOUT_MS}, "batch.size": 500,
    "retry.backoff.ms": 5, "retry.backoff.max.ms": 20}}
with Producer(settings) as producer, producer.scope() as scope:
    for begin in range(0, {COUNT}, 10):
        values = [b"%d" % value for value in range(begin, begin + 10)]
        scope.append(topic, RecordColumns(10, value=pyarrow.array(values, pyarrow.binary())))
        if begin == 100:
            print("under way", flush=True)
    scope.flush(60)
    print(scope.report().records, flush=True)
"""


@pytest.mark.fault("connection", "the client is paused for longer than the request timeout")
@pytest.mark.slow
def test_a_client_that_was_paused_sends_the_rest_once_and_in_order(proxied_kafka: ProxiedKafka, new_topic: NewTopic) -> None:
    topic = new_topic(1, on=proxied_kafka.cluster)
    proxied_kafka.proxy.delay(0.1)  # so that requests are in flight whenever it is
    command = [sys.executable, "-c", PROGRAM, proxied_kafka.cluster.bootstrap_servers, topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "under way\n"
            program.send_signal(signal.SIGSTOP)
            with suppress(subprocess.TimeoutExpired):
                program.wait(PAUSE_S)
            program.send_signal(signal.SIGCONT)
            assert program.stdout.readline() == f"{COUNT}\n"
            assert program.wait(30) == 0
        finally:
            program.kill()
    read = read_topic(proxied_kafka.cluster.direct_servers, topic)
    assert_each_once_in_order([int(record.value or b"") for record in read], COUNT)
