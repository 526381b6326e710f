"""A row of the table of the sink's own options, for checks and for the documentation."""

from __future__ import annotations

from typing import NamedTuple


class SinkOption(NamedTuple):
    """An option of the sink itself, in words. differs: what Spark's own Kafka sink does differently."""

    name: str
    takes: str
    default: str
    doc: str
    differs: str = ""
