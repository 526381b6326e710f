"""`spark-kafka-sink watch` as a process, on the page of a driver's metrics in this one."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from spark_kafka_sink.cli.main import main
from spark_kafka_sink.exporters.prometheus import PrometheusServer, serve_prometheus
from spark_kafka_sink.spark.driver.metrics import DeliveryMetrics
from tests.cli.command import TIMEOUT_S, command, ended, environment
from tests.exporters.reports import batch
from tests.spark.counting import counting

QUERY = "b44074e6-598d-4b2d-877c-aec61ca3ef32"


@pytest.fixture
def metrics() -> Iterator[DeliveryMetrics]:
    made = counting()
    made.batch_committed(batch(QUERY))
    yield made
    made.close()


@pytest.fixture
def server(metrics: DeliveryMetrics) -> Iterator[PrometheusServer]:
    served = serve_prometheus(metrics, 0)
    yield served
    served.stop()


def url(server: PrometheusServer) -> str:
    return f"http://127.0.0.1:{server.port}/metrics"


def test_in_a_pipe_a_line_is_printed_for_each_micro_batch(server: PrometheusServer) -> None:
    done = ended("watch", "--url", url(server), "--timeout", "0.1")
    assert (done.returncode, done.stderr) == (0, "")
    head, line, end = done.stdout.splitlines()
    assert head.split()[:4] == ["time", "query", "batch", "rows"]
    assert line.split()[1:4] == ["b44074e6", "3", "20"]
    assert end.endswith("  b44074e6 has ended")  # there is no Spark here


class Watching:
    """`watch` in a terminal of 160 columns, or with pipes; killed at the end if it still runs."""

    def __init__(self, server: PrometheusServer) -> None:
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 160, 0, 0))
        line = command("watch", "--url", url(server), "--interval", "0.1")
        self.process = subprocess.Popen(line, env=environment(), stdin=inner, stdout=inner, stderr=inner, start_new_session=True)
        os.close(inner)
        self.text = ""

    def __enter__(self) -> Watching:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        os.close(self._terminal)

    def wait_for(self, text: str) -> None:
        end = time.monotonic() + TIMEOUT_S
        while text not in self.text:
            ready, _, _ = select.select([self._terminal], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{text!r} is not in {self.text!r}"
            self.text += os.read(self._terminal, 65536).decode()


def test_in_a_terminal_the_table_is_replaced_until_the_driver_is_gone_and_ctrl_c_ends_it(
    metrics: DeliveryMetrics, server: PrometheusServer
) -> None:
    with Watching(server) as watching:
        watching.wait_for("b44074e6")
        metrics.batch_committed(batch("another"))
        watching.wait_for("another")
        assert "\x1b[2F" in watching.text
        server.stop()
        watching.wait_for("does not answer: Connection refused")
        watching.process.send_signal(signal.SIGINT)
        assert watching.process.wait(TIMEOUT_S) == 1
    assert "Traceback" not in watching.text


def test_a_page_that_does_not_answer_is_one_line(server: PrometheusServer) -> None:
    server.stop()
    done = CliRunner().invoke(main, ["watch", "--url", url(server)])
    assert done.exit_code == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Error: {url(server)} does not answer: Connection refused. Does the driver run")


def test_ctrl_c_ends_a_view_of_a_driver_that_answers_with_success(server: PrometheusServer) -> None:
    with Watching(server) as watching:
        watching.wait_for("b44074e6")
        watching.process.send_signal(signal.SIGINT)
        assert watching.process.wait(TIMEOUT_S) == 0
    assert "Traceback" not in watching.text


@pytest.mark.parametrize("wrong", ["127.0.0.1:9404", "file:///etc/passwd", "http://user:password@127.0.0.1:9404"])
def test_an_address_that_is_none_is_a_wrong_option(wrong: str) -> None:
    done = CliRunner().invoke(main, ["watch", "--url", wrong])
    assert done.exit_code == 2
    assert "--url: must be http://HOST:PORT/PATH or https://HOST:PORT/PATH, without a user" in done.stderr
    assert "password" not in done.stderr
