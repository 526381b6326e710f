"""A real schema registry from Maven Central: Apicurio Registry, through its API that is compatible with Confluent's."""

from __future__ import annotations

import os
import subprocess
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.kafka import java
from tests.kafka.guardian import Guardian
from tests.kafka.jars import jars
from tests.kafka.ports import free_ports

POM: Final = Path(__file__).with_name("pom.xml")
START_S: Final = 120.0
OPTIONS: Final = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Apicurio:
    """Starts in the constructor, in memory, and is ready after `wait()`; ends in `stop()` or at the end of a `with`.

    It has no login, no guids, no rule sets, and no messages about compatibility. Its default compatibility level is NONE.
    """

    def __init__(self, folder: Path) -> None:
        (program,) = jars(POM).glob("*-runner.jar")
        port, management_port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self._output = folder / "apicurio.log"
        self._guardian = Guardian()
        settings = {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(port),
            # Otherwise it would listen on every address of this machine.
            "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
            "QUARKUS_MANAGEMENT_PORT": str(management_port),
            "QUARKUS_PROFILE": "prod",
        }
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [java.java(), *OPTIONS, f"-Djava.io.tmpdir={folder}", "-jar", str(program)],
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

    def wait(self) -> None:
        """Returns when the registry answers; TimeoutError with its output if it does not."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                    answer.read()
                return
            except OSError:
                if time.monotonic() > deadline or self._process.poll() is not None:
                    said = self._output.read_text(errors="replace")[-2000:]
                    raise TimeoutError(f"Apicurio Registry did not start:\n{said}") from None
                time.sleep(0.1)

    def stop(self) -> None:
        """Kills the registry; may be called again."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(timeout=30)
            self._guardian.forget_process(self._process.pid)
        self._guardian.close()
