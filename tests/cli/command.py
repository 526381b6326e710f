"""`spark-kafka-sink` as a process, with what it printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

CHECKOUT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 120.0


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "spark_kafka_sink", *arguments]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONWARNINGS": "error"}


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that ends by itself."""
    return subprocess.run(command(*arguments), env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


class BrokerProcess:
    """`spark-kafka-sink broker`, ready; killed at the end if it still runs."""

    def __init__(self, *arguments: str) -> None:
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command("broker", *arguments), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        # Read while it runs, so that it never waits for the pipe.
        self._log: list[str] = []
        self._reader = threading.Thread(target=self._log.extend, args=(self.process.stderr,))
        self._reader.start()
        self.ready = self.process.stdout.readline()
        self.ready_s = time.monotonic() - self.began
        found = re.search(r"Ready: bootstrap\.servers=(\S+),", self.ready)
        if found is None:
            self._end()
            raise AssertionError(f"it was not ready: {self.ready}{self.log}")
        self.address = found[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def signal(self, number: int) -> int:
        """Send it; the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return code

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def log(self) -> str:
        """What it logged: all of it once it has ended."""
        return "".join(self._log)

    def _end(self) -> None:
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        for pipe in (self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
