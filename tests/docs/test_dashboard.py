"""The Grafana dashboard asks for metrics that there are, and the compose file starts what shows it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from docs.dashboard import NOT_SHOWN, Panel, panels
from docs.pages import FOLDER
from spark_kafka_sink.exporters.metric_families import FAMILIES
from spark_kafka_sink.exporters.prometheus import prometheus_name
from tests.exporters.promtool import promtool

COMPOSE = FOLDER.parent / "docker-compose.yml"
GRAFANA = FOLDER / "grafana"
LABELS = {prometheus_name(family): {*family.labels} for family in FAMILIES} | {
    "kafka_sink_ack_latency_seconds_bucket": {"topic", "le"}
}
TARGET = {"job", "instance"}
"""Labels that Prometheus adds."""


def test_each_metric_has_a_panel_and_each_panel_metrics_that_there_are() -> None:
    asked = {name for panel in panels() for query in panel.queries for name in re.findall(r"kafka_sink_\w+", query.expr)}
    assert asked == set(LABELS) - set(NOT_SHOWN)
    assert set(NOT_SHOWN) < set(LABELS)


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel.title)
def test_a_panel_uses_labels_that_its_metrics_have(panel: Panel) -> None:
    for query in panel.queries:
        names = re.findall(r"kafka_sink_\w+", query.expr)
        known = TARGET.union(*(LABELS[name] for name in names))
        selected = re.findall(r"[{,]\s*(\w+)(?:=|!=|=~)", query.expr)
        grouped = re.findall(r"by \(([^)]*)\)", query.expr)
        by = {label for each in grouped for label in re.findall(r"\w+", each)}
        shown = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
        assert {*selected, *by, *shown} <= known
        assert shown <= by or not grouped
        assert query.expr.count('job=~"$job"') == len(names)


def test_prometheus_understands_every_query(tmp_path: Path) -> None:
    exprs = [query.expr.replace("$job", ".*").replace("$__rate_interval", "1m") for panel in panels() for query in panel.queries]
    rules = [{"record": f"query_{number}", "expr": expr} for number, expr in enumerate(exprs)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}), encoding="utf-8")
    done = promtool("check", "rules", "rules.yml", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    return found


def test_monitoring_is_a_profile_with_pinned_images_on_the_loopback_interface() -> None:
    services = compose()
    assert "profiles" not in services["kafka"]
    for name in ("prometheus", "grafana"):
        assert services[name]["profiles"] == ["monitoring"]
        assert re.fullmatch(r"[\w/]+:v?\d+\.\d+\.\d+", services[name]["image"])
        assert services[name]["network_mode"] == "host"
    assert "--web.listen-address=127.0.0.1:9090" in services["prometheus"]["command"]
    assert services["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"


def test_the_files_that_the_containers_mount_are_there_and_fit_together() -> None:
    services = compose()
    inside = {}
    for name in ("prometheus", "grafana"):
        for volume in services[name]["volumes"]:
            outside, path, mode = volume.split(":")
            assert (COMPOSE.parent / outside).exists()
            assert mode == "ro"
            inside[path] = COMPOSE.parent / outside
    settings = yaml.safe_load((FOLDER / "prometheus/prometheus.yml").read_text(encoding="utf-8"))
    assert [(FOLDER / "prometheus" / name).is_file() for name in settings["rule_files"]] == [True]
    assert settings["scrape_configs"][0]["static_configs"] == [{"targets": ["127.0.0.1:9404"]}]
    (source,) = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text(encoding="utf-8"))["datasources"]
    assert source["url"] == "http://127.0.0.1:9090"
    (provider,) = yaml.safe_load((GRAFANA / "provisioning/dashboards/spark-kafka-sink.yml").read_text(encoding="utf-8"))[
        "providers"
    ]
    home = services["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert inside[home] == GRAFANA / "dashboard.json"
    assert str(Path(home).parent) == provider["options"]["path"]
