"""One run of one target under atheris, in a process of its own, because libFuzzer ends its process.

python -m tests.fuzz.run TARGET [option or folder of libFuzzer ...]
"""

from __future__ import annotations

import sys
import time
from typing import Final

import atheris

_FOLDERS: Final = ("protocol", "records", "client", "broker", "exactly_once", "formats", "verify")
_PACKAGES: Final = [f"spark_kafka_sink.{name}" for name in _FOLDERS]
_SECONDS: Final = 1.0


def main() -> None:
    name, arguments = sys.argv[1], sys.argv[2:]
    with atheris.instrument_imports(include=_PACKAGES):
        from tests.fuzz.targets import TARGETS
    target, _ = TARGETS[name]

    def in_time(data: bytes) -> None:
        begun = time.thread_time()
        target(data)
        took = time.thread_time() - begun
        assert took <= _SECONDS, f"{len(data)} bytes took {took:.2f} s of processor time"

    atheris.Setup([name, *arguments], in_time)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
