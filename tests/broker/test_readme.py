"""The broker's chapter names functions that exist. tests/test_design.py looks for its files."""

from __future__ import annotations

import re
from pathlib import Path

import spark_kafka_sink.broker

FOLDER = Path(spark_kafka_sink.broker.__file__).parent
TEXT = (FOLDER / "README.md").read_text(encoding="utf-8")


def test_every_function_of_the_symptoms_is_in_its_file() -> None:
    missing = []
    (table,) = re.findall(r"## Symptom and file(.*?)##", TEXT, re.DOTALL)
    for path, names in re.findall(r"`([a-z_/]+\.py)`: ((?:`[\w.]+`(?:, )?)+)", table):
        code = (FOLDER / path).read_text(encoding="utf-8")
        for name in re.findall(r"[\w.]+", names):
            missing += [f"{path}: {part}" for part in name.split(".") if not re.search(rf"^ *(?:def|class) {part}\b", code, re.M)]

    assert missing == []
