"""The settings files in conf/ are right: every job's sections, the sink's options, trigger and columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.settings import load
from spark_kafka_sink.options.sink_options import sink_options

CONF = sorted((Path(__file__).parents[2] / "conf").glob("*.toml"))


def test_there_are_files_for_rate_files_kafka_and_a_batch() -> None:
    assert [file.stem for file in CONF] == ["export_batch", "publish_files", "publish_kafka", "publish_rate"]


@pytest.mark.parametrize("file", CONF, ids=lambda file: file.stem)
def test_each_loads_and_names_a_source_a_topic_and_values(file: Path) -> None:
    settings = load(file)

    assert settings.required("source", "format")
    assert settings.required("columns", "value")
    assert sink_options(settings.texts("sink")).topic
    assert sink_options(settings.texts("sink")).producer.bootstrap_servers == ("localhost:9092",)


@pytest.mark.parametrize("file", [file for file in CONF if file.stem.startswith("publish")], ids=lambda file: file.stem)
def test_a_stream_says_where_it_continues(file: Path) -> None:
    assert load(file).required("query", "checkpoint") == f"checkpoints/{file.stem}"
