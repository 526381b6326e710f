"""Scrapes an exporter, with the parser of Prometheus' own client."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def named(query: str, name: str) -> tuple[tuple[str, str], ...]:
    """Returns the labels of a query's metrics."""
    return (("query", query), ("query_name", name))


def scraped(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=10) as response:
        return parsed(response.read().decode())


def parsed(text: str) -> Samples:
    found: list[Sample] = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    return {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in found}
