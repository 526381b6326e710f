"""golden/options-4.1.0.txt: every option that Kafka's own Java producer has (GoldenOptions.java)."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from tests.kafka.jars import jars
from tests.kafka.java import java

PROGRAM = Path(__file__).parent / "golden" / "GoldenOptions.java"
OPTIONS_TXT = Path(__file__).parent / "golden" / "options-4.1.0.txt"


class JavaOption(NamedTuple):
    """As Java prints it. default: `required` where there is none, `null` where that is the default."""

    name: str
    kind: str
    default: str
    valid: str

    @property
    def lowest(self) -> int | None:
        """The least value of a number that has one."""
        found = re.match(r"\[(-?\d+),", self.valid) if self.kind in ("INT", "LONG") else None
        return None if found is None else int(found[1])

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The least and the greatest value of a number that has both."""
        found = re.fullmatch(r"\[([\d.]+),\.\.\.,([\d.]+)\]", self.valid)
        return None if found is None else (float(found[1]), float(found[2]))


def java_options() -> dict[str, JavaOption]:
    options = (JavaOption(*line.split("\t")) for line in OPTIONS_TXT.read_text().splitlines())
    return {option.name: option for option in options}


def run_java() -> str:
    """What GoldenOptions prints: about two seconds, as Java compiles it first."""
    command = [java(), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(jars() / "*"), str(PROGRAM)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
