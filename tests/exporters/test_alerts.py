"""The alert rules ask for metrics that there are, and Prometheus' own promtool says when they fire."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from spark_kafka_sink.exporters.metric_families import FAMILIES
from spark_kafka_sink.exporters.prometheus import prometheus_name
from tests.exporters.promtool import promtool

RULES = Path(__file__).parents[2] / "docs/prometheus/alerts.yml"
CASES = Path(__file__).parent / "alerts_test.yml"


def alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


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


def test_for_each_alert_there_is_a_case_that_fires_and_one_that_does_not() -> None:
    cases = [case for test in yaml.safe_load(CASES.read_text(encoding="utf-8"))["tests"] for case in test["alert_rule_test"]]
    fires = {case["alertname"] for case in cases if case["exp_alerts"]}
    stays_silent = {case["alertname"] for case in cases if not case["exp_alerts"]}
    names = {rule["alert"] for rule in alerts()}
    assert fires == stays_silent == names


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", RULES.name, folder=RULES.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


def test_promtool_accepts_the_settings_that_name_the_rules() -> None:
    done = promtool("check", "config", "prometheus.yml", folder=RULES.parent)
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_fires_on_its_fault_and_not_without_it() -> None:
    done = promtool("test", "rules", CASES.name, folder=CASES.parent)
    assert done.returncode == 0, done.stdout + done.stderr
