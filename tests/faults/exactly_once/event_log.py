"""What Spark itself wrote down of a query's tasks: which attempts of which there were."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def settings(folder: Path) -> dict[str, str]:
    """Of a driver that writes its events into a file of the folder, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": folder.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }


@dataclass(frozen=True)
class TaskAttempt:
    """One that has begun. index: of the task in its stage. speculative: it is a copy of one that seemed slow."""

    stage: int
    stage_attempt: int
    index: int
    speculative: bool
    host: str


def task_attempts(folder: Path, query_id: str) -> list[TaskAttempt]:
    """Those of a query that is done. Spark writes them out at the end of each job at the latest."""
    stages = set[int]()
    found = []
    for event in _events(folder):
        match event:
            case {"Event": "SparkListenerStageSubmitted", "Stage Info": info, "Properties": {"sql.streaming.queryId": query}}:
                if query == query_id:
                    stages.add(info["Stage ID"])
            case {"Event": "SparkListenerTaskStart", "Stage ID": stage, "Stage Attempt ID": again, "Task Info": info}:
                if stage in stages:
                    found.append(TaskAttempt(stage, again, info["Index"], info["Speculative"], info["Host"]))
    return found


def _events(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.iterdir():
        if not path.name.startswith("."):  # Hadoop's checksums
            yield from (json.loads(line) for line in path.read_text().splitlines())
