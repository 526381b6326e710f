"""The alert rules ask for metrics that there are."""

from __future__ import annotations

import re
from pathlib import Path

from spark_kafka_sink.exporters.families import FAMILIES
from spark_kafka_sink.exporters.prometheus import prometheus_name

RULES = Path(__file__).parents[2] / "docs/prometheus/alerts.yml"


def test_each_metric_of_a_rule_is_one_that_is_served_with_its_labels() -> None:
    labels = {prometheus_name(family): {*family.labels} for family in FAMILIES}
    labels["kafka_sink_ack_latency_seconds_bucket"] = {"topic", "le"}
    asked = re.findall(r"(kafka_sink_\w+)(?:\{([^}]*)\})?", RULES.read_text(encoding="utf-8"))
    assert asked
    for name, selectors in asked:
        assert name in labels
        assert {*re.findall(r"(\w+)[!=]", selectors)} <= labels[name]


def test_each_label_of_a_text_is_one_of_its_metric() -> None:
    labels = {label for family in FAMILIES for label in family.labels} | {"topic", "instance"}
    assert {*re.findall(r"labels\.(\w+)", RULES.read_text(encoding="utf-8"))} <= labels
