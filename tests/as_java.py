"""golden/AsJava.java: what Java makes of login lines and of properties files."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.kafka.jars import jars
from tests.kafka.java import java

PROGRAM = Path(__file__).parent / "golden" / "AsJava.java"


def as_java(what: str, texts: Sequence[str]) -> list[dict[str, str] | None]:
    """Returns for each text what Java reads, None where it refuses. A login line's class name has the empty key.

    what: `jaas` or `properties`. Takes about two seconds, as Java compiles the program first.
    """
    options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    command = [java(), *options, "-cp", str(jars() / "*"), str(PROGRAM)]
    given = "".join(f"{what} {base64.b64encode(text.encode()).decode()}\n" for text in texts)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return [None if line == "error" else _pairs(line) for line in done.stdout.splitlines()]


def _pairs(line: str) -> dict[str, str]:
    return {decoded(name): decoded(value) for name, _, value in (pair.partition(":") for pair in line.split())}


def decoded(text: str) -> str:
    return base64.b64decode(text).decode()
