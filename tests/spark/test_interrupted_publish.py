"""Ctrl+C during `publish` in a real terminal: a script with Spark of its own."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator

import psutil
import pytest

from tests.spark.kernel import SETUP
from tests.spark.session import ROOT

START_S = 150.0
END_S = 40.0
CTRL_C = b"\x03"

PROGRAM = f"""{SETUP}
df = spark.range(0, 1_000_000, 1, 2).selectExpr("string(id) AS key", "string(id) AS value")
sks.publish(df, topic="events", bootstrap_servers=broker.bootstrap_servers, options={{"max.records.per.second": "1000"}})
"""


class Script:
    """A Python program that a shell has started in a terminal: a session with a terminal of its own."""

    def __init__(self, program: str) -> None:
        self._terminal, inner = pty.openpty()
        fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        # setsid makes the terminal that of the session, so that Ctrl+C reaches its processes as in a shell.
        start = f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)\n{program}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", start],
            env={**os.environ, "PYTHONPATH": path},
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
        )
        os.close(inner)
        self.text = ""

    def read_until(self, pattern: str, timeout_s: float) -> None:
        end = time.monotonic() + timeout_s
        while not re.search(pattern, self.text):
            ready, _, _ = select.select([self._terminal], [], [], max(end - time.monotonic(), 0))
            assert ready, f"{pattern!r} is not in the last text: {self.text[-2000:]!r}"
            self.text += os.read(self._terminal, 65536).decode(errors="replace")

    def press(self, key: bytes) -> None:
        os.write(self._terminal, key)

    def started(self) -> list[psutil.Process]:
        return list(psutil.Process(self.process.pid).children(recursive=True))

    def end(self) -> None:
        for process in [self.process, *(self.started() if self.process.poll() is None else [])]:
            process.kill()
        self.process.wait(END_S)
        os.close(self._terminal)


@pytest.fixture
def script() -> Iterator[Script]:
    started = Script(PROGRAM)
    yield started
    started.end()


@pytest.mark.spark
@pytest.mark.timeout(400)
@pytest.mark.whole("PySpark's own handler cancels the job here; test_kernel.py finds what is ours to do, and starts Spark once")
def test_ctrl_c_ends_the_script_which_says_what_was_delivered_and_leaves_no_process(script: Script) -> None:
    script.read_until(r"tasks \[[^]]*?, [1-9][0-9,]* rows, ", START_S)
    left = script.started()
    begun = time.monotonic()
    script.press(CTRL_C)
    script.read_until(
        r"(?s)KeyboardInterrupt.*Kafka has acknowledged [1-9][0-9,]* rows or more; they stay in their topics", END_S
    )
    assert script.process.wait(END_S) == -signal.SIGINT
    _, alive = psutil.wait_procs(left, END_S)
    assert alive == []
    assert time.monotonic() - begun < END_S
