"""docs/options.md: every option from the tables that the code itself uses, so that the page and the code cannot differ."""

from __future__ import annotations

from docs.markdown import table
from spark_kafka_sink.config import OPTIONS
from spark_kafka_sink.option import REQUIRED, Kind
from spark_kafka_sink.spark.options import HARMLESS, ONLY_PLAINTEXT, REFUSED, REFUSED_PREFIXES, SINK_OPTIONS

HEAD = """# Options

Made from the code by `make docs`. Names and units are those of Kafka 4.1's Java producer: ms are milliseconds, sizes are bytes.

`Producer(settings)` takes the producer's options by their names here. `format("kafka_sink")`, `publish`, `foreach_batch` and
`partition_writer` take them with the prefix `kafka.`, and the sink's own without. A value may be text. An unknown option is an
error that names the nearest known one. [Serializers](serializers.md) and [partitioners](partitioners.md) have pages of their own.
"""
SINK = """
## The sink's

"""
PRODUCER = """
## The producer's

"""
JAVA = """
## Java's that are not here

`Producer(settings)` refuses these as unknown. The sink takes settings that were written for Spark's own Kafka sink: it ignores,
with one warning, what changes nothing about what is delivered or who may read it, and refuses the rest.

"""


def options_page() -> str:
    return f"{HEAD}{SINK}{_sink_table()}{PRODUCER}{_producer_table()}{JAVA}{_java_table()}"


def _sink_table() -> str:
    rows = ([f"`{row.name}`", row.takes, row.default or "not set", row.doc, row.differs] for row in SINK_OPTIONS.values())
    return table(["option", "takes", "default", "what it does", "what Spark's own Kafka sink does"], rows)


def _producer_table() -> str:
    rows = (
        [
            f"`{option.name}`",
            option.kind.wanted,
            _default(option.kind, option.default),
            _default(option.kind, option.java),
            option.doc,
            option.differs,
        ]
        for option in OPTIONS.values()
    )
    return table(["option", "takes", "default", "Java's default", "what it does", "what Java does differently, and why"], rows)


def _java_table() -> str:
    refused = {**REFUSED, **{f"{prefix}*": reason for prefix, reason in REFUSED_PREFIXES.items()}}
    said = {
        "security.protocol": ("checked", ONLY_PLAINTEXT),
        **{name: ("ignored", reason) for name, reason in HARMLESS.items()},
        **{name: ("refused", reason) for name, reason in refused.items()},
    }
    return table(["option", "the sink", "because"], ([f"`{name}`", *said[name]] for name in sorted(said)))


def _default(kind: Kind, value: object) -> str:
    if value is REQUIRED:
        return "required"
    return "not set" if value in (None, (), "") else f"`{kind.text(value)}`"
