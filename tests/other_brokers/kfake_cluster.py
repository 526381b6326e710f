"""franz-go's kfake, a Kafka in Go that is neither Kafka's nor ours, as a process. Needs Go; its modules are fetched once."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.kafka.jars import cache_dir, locked

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
