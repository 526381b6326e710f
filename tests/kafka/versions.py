"""The versions of Kafka that tests run on. Each has a pom, which pins its patch."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kafka.jars import KAFKA_POM, jars

DEFAULT = "4.1"
OLDEST = "2.1"
NEWEST = "4.4"
_OTHERS = (OLDEST, "2.8", "3.3", "3.7", "3.8", "3.9", "4.0", NEWEST)
POMS: dict[str, Path] = {
    DEFAULT: KAFKA_POM,
    **{version: Path(__file__).parent / "poms" / f"kafka-{version}.xml" for version in _OTHERS},
}


def jars_of(version: str) -> Path:
    """Returns the folder that holds the jars of `version`, such as "3.9"; raises ValueError for one that has no pom."""
    return jars(_pom(version))


def patch_of(version: str) -> str:
    """Returns the full version: "3.9.2" of "3.9"."""
    return broker_jar(version).removesuffix(".jar").rpartition("-")[2]


def broker_jar(version: str) -> str:
    """Returns the name of the jar with the broker: "kafka_2.13-3.9.2.jar" of "3.9"."""
    found = re.search(r"<artifactId>(kafka_2\.1[23])</artifactId>\s*<version>(.+?)</version>", _pom(version).read_text())
    if found is None:
        raise ValueError(f"{_pom(version)} does not pin a version of Kafka")
    return f"{found[1]}-{found[2]}.jar"


def uses_log4j_1(version: str) -> bool:
    """Whether a broker of `version` logs through log4j 1, as all do before 4.0."""
    return _numbers(version) < (4, 0)


def has_default_replication(version: str) -> bool:
    """Whether a topic can be created with the broker's default replication factor (KIP-464)."""
    return _numbers(version) >= (2, 4)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _pom(version: str) -> Path:
    if version not in POMS:
        raise ValueError(
            f"Kafka {version} has no pom: add tests/kafka/poms/kafka-{version}.xml, or use one of {', '.join(sorted(POMS))}"
        )
    return POMS[version]
