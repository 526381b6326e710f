"""`tail(topic)`: the newest records of a topic as a table, for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import pyarrow as pa

from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.options.schema_options import is_registry_option
from spark_kafka_sink.options.sink_options import KAFKA_PREFIX, TOPIC, sink_options
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.spark.driver.topic_history import newest_records
from spark_kafka_sink.verify.decoding import Decoders, as_text, decoded, decoders

_FORMATS: Final = ("key.format", "value.format")


def tail(
    topic: str,
    n: int = 10,
    *,
    bootstrap_servers: str | Sequence[str] | None = None,
    options: Mapping[str, object] | None = None,
    partition: int | None = None,
    uncommitted: bool = False,
) -> pa.Table:
    """Returns the newest records of a topic, oldest first, for people who look at them.

    It reads as a consumer with isolation.level=read_committed, needs no consumer group, and waits for 30 seconds at most: 10 for
    the first answer.
    `to_pandas()` of the result, or `spark.createDataFrame(result)`, makes a DataFrame of it. To process a topic, use Spark's own
    source or a consumer.

    Args:
        topic: The topic.
        n: How many records, 1 to 10,000, of at most 256 MB in all.
        bootstrap_servers: "host:port,host:port", or a sequence of "host:port".
        options: As for `format("kafka_sink")`: those that a write was given may be given here, too.
        partition: Of this partition only. None for all.
        uncommitted: Whether to show records of open and aborted transactions, too.

    Returns:
        The table has the columns of Spark's Kafka source. `topic` is a string, `partition` int32, `offset` int64, and `timestamp`
        in ms, UTC. `key` and `value` are binary, and `headers` is a list of structs of `key` and `value`. If the options name a
        registry, `key` and `value` are strings, JSON if it has their schema, else the text, or `0x` and hexadecimal digits.

    Raises:
        KafkaSinkError: An option is wrong, or the topic or the registry cannot be read.
    """
    given = {name.lower(): value for name, value in (options or {}).items()} | {TOPIC: topic}
    if bootstrap_servers is not None:
        given[KAFKA_PREFIX + "bootstrap.servers"] = bootstrap_servers
    # About bad rows and reports, whose topics may be the one to look at.
    given = {name: value for name, value in given.items() if not name.startswith(("on.error", "dead.letter.", "report."))}
    registry = {name: value for name, value in given.items() if is_registry_option(name)}
    has_format = any(name in given for name in _FORMATS)
    sink = sink_options({name: value for name, value in given.items() if has_format or name not in registry})
    decoding: AbstractContextManager[Decoders] = nullcontext({})
    if registry:
        decoding = decoders(topic, registry_config(registry), "tail() with a schema registry")
    with decoding as by_part:
        found = newest_records("tail", topic, n, sink, partition=partition, uncommitted=uncommitted)
        parts = {part: [_part(part, record, by_part) for _, record in found] for part in ("key", "value")}
    kind = pa.string() if registry else pa.binary()
    headers = [[{"key": name, "value": value} for name, value in record.headers] or None for _, record in found]
    return pa.table(
        {
            "topic": pa.array([topic] * len(found), pa.string()),
            "partition": pa.array([place for place, _ in found], pa.int32()),
            "offset": pa.array([record.offset for _, record in found], pa.int64()),
            "timestamp": pa.array([record.timestamp for _, record in found], pa.int64()).cast(pa.timestamp("ms", "UTC")),
            "key": pa.array(parts["key"], kind),
            "value": pa.array(parts["value"], kind),
            "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        }
    )


def _part(part: str, record: Record, decoders: Decoders) -> bytes | str | None:
    data = record.key if part == "key" else record.value
    if data is None or not decoders:
        return data
    found = decoded(part, data, record.headers, decoders)
    if found.json is not None:
        return found.json
    return as_text(data) + (f" (cannot be decoded: {found.problem})" if found.problem else "")
