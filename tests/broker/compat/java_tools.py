"""Kafka's command line tools, at an embedded broker: what bin/kafka-*.sh starts."""

from __future__ import annotations

import json
from typing import Any

from tests.kafka import java

TIMEOUT_S = 60.0
TOOLS = "org.apache.kafka.tools"


def tool(name: str, servers: str, *arguments: str, given: str = "") -> list[str]:
    """What it printed, line by line. `name` of its class, without Kafka's package of tools; RuntimeError where it fails."""
    main_class = name if name.startswith("kafka.") else f"{TOOLS}.{name}"
    return java.run(main_class, "--bootstrap-server", servers, *arguments, timeout_s=TIMEOUT_S, given=given).splitlines()


def table(lines: list[str], first_column: str = "GROUP") -> list[dict[str, str]]:
    """The rows of a table, by its headings; it begins with the first line that names `first_column`."""
    start = next(index for index, line in enumerate(lines) if line.split()[:1] == [first_column])
    headings = lines[start].replace("COORDINATOR (ID)", "COORDINATOR ID").split()
    return [dict(zip(headings, line.split(), strict=True)) for line in lines[start + 1 :] if line.strip()]


def events(lines: list[str]) -> list[dict[str, Any]]:
    """What one of the verifiable clients tells of itself."""
    return [json.loads(line) for line in lines if line.startswith("{")]
