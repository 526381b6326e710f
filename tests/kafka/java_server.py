"""A server in Java that tests start as a process: it answers over HTTP, and ends with the tests, however these end."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.kafka import java
from tests.kafka.guardian import Guardian

OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class JavaServer:
    """Starts in the constructor and is ready after `wait()`; ends in `stop()` or at the end of a `with`."""

    def __init__(self, name: str, arguments: Sequence[str], settings: Mapping[str, str], folder: Path, alive: str) -> None:
        """Starts the process.

        Args:
            name: what it is, for errors.
            arguments: those of `java`.
            settings: variables of its environment.
            folder: where it runs, and where its output is.
            alive: a URL that it answers when it is ready.
        """
        self._name = name
        self._alive = alive
        self._output = folder / f"{type(self).__name__.lower()}.log"
        self._guardian = Guardian()
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [java.java(), *OPTIONS, f"-Djava.io.tmpdir={folder}", *arguments],
                cwd=folder,
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._guardian.watch_process(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def wait(self, limit_s: float = 120.0) -> None:
        """Returns when the server answers; TimeoutError with its output if it does not."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                with urllib.request.urlopen(self._alive, timeout=5) as answer:
                    answer.read()
                return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    said = self._output.read_text(errors="replace")[-2000:]
                    raise TimeoutError(f"{self._name} did not start:\n{said}") from None
                time.sleep(0.1)

    def stop(self) -> None:
        """Kills the server; may be called again."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=30)
            self._guardian.forget_process(self._process.pid)
        self._guardian.close()
