"""The names are Java's, no more and no less but for those of the rate limit, and the page in docs/ is that of the table."""

from __future__ import annotations

from pathlib import Path

from spark_kafka_sink.producer.metrics.metric_table import CONSTANT_METRICS, GAUGES, NODE, OWN, PRODUCER, TOPIC, Measured
from tests.producer.metrics.golden_metrics import golden_names

PAGE = Path(__file__).parents[3] / "docs" / "metrics.md"


def test_every_name_is_one_of_javas_and_every_one_of_javas_is_there() -> None:
    producer = [*(metric.name for metric in (*PRODUCER, *GAUGES)), *CONSTANT_METRICS]
    groups = {
        "producer-metrics": producer,
        "producer-topic-metrics": [metric.name for metric in TOPIC],
        "producer-node-metrics": [metric.name for metric in NODE],
    }
    ours = [(group, name) for group, names in groups.items() for name in names]
    assert sorted(ours) == sorted(golden_names())
    assert not {metric.name for metric in OWN} & set(producer)


def test_every_metric_is_read_from_something_that_is_measured() -> None:
    measured = Measured(6, 2, 4, 1000, 60, 20)
    assert {type(getattr(measured, metric.read)) for metric in (*PRODUCER, *OWN, *TOPIC, *NODE)} <= {int, float}
    assert all(metric.stat for metric in (*PRODUCER, *OWN, *TOPIC, *NODE))


def test_the_page_names_what_is_not_done() -> None:
    page = PAGE.read_text()
    assert [name for name in CONSTANT_METRICS if f"`{name}`" not in page] == []
