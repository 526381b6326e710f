"""The broker's chapter names files and functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import spark_kafka_sink.broker

FOLDER = Path(spark_kafka_sink.broker.__file__).parent
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_every_file_and_folder_exists() -> None:
    named = set(re.findall(r"[a-z_/]+\.py|\b[a-z]+/(?=`| )", TEXT))

    assert len(named) > 30
    assert [path for path in named if not list(FOLDER.glob(f"**/{path}"))] == []


def test_every_function_of_the_symptoms_is_in_its_file() -> None:
    missing = []
    (table,) = re.findall(r"## Symptom and file(.*?)##", TEXT, re.DOTALL)
    for path, names in re.findall(r"`([a-z_/]+\.py)`: ((?:`[\w.]+`(?:, )?)+)", table):
        code = (FOLDER / path).read_text(encoding="utf-8")
        for name in re.findall(r"[\w.]+", names):
            missing += [f"{path}: {part}" for part in name.split(".") if not re.search(rf"^ *(?:def|class) {part}\b", code, re.M)]

    assert missing == []
