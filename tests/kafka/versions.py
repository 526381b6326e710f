"""The versions of Kafka that tests run on. Each has a pom, which pins its patch."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kafka.jars import KAFKA_POM, jars

DEFAULT = "4.1"
NEWEST = "4.4"
POMS: dict[str, Path] = {
    DEFAULT: KAFKA_POM,
    **{version: Path(__file__).parent / "poms" / f"kafka-{version}.xml" for version in ("3.7", "3.8", "3.9", NEWEST)},
}


def jars_of(version: str) -> Path:
    """Returns the folder that holds the jars of `version`, such as "3.9"; raises ValueError for one that has no pom."""
    return jars(_pom(version))


def patch_of(version: str) -> str:
    """Returns the full version: "3.9.2" of "3.9"."""
    found = re.search(r"<artifactId>kafka_2\.13</artifactId>\s*<version>(.+?)</version>", _pom(version).read_text())
    if found is None:
        raise ValueError(f"{_pom(version)} does not pin a version of kafka_2.13")
    return found[1]


def uses_log4j_1(version: str) -> bool:
    """Whether a broker of `version` logs through log4j 1, as all do before 4.0."""
    return int(version.partition(".")[0]) < 4


def _pom(version: str) -> Path:
    if version not in POMS:
        raise ValueError(
            f"Kafka {version} has no pom: add tests/kafka/poms/kafka-{version}.xml, or use one of {', '.join(sorted(POMS))}"
        )
    return POMS[version]
