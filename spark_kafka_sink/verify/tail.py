"""`tail(topic)`: the newest records of a topic as a table, for notebooks."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.topic_reader import TopicReader
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.options.schema_options import is_registry_option
from spark_kafka_sink.options.sink_options import KAFKA_PREFIX, TOPIC, sink_options
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.verify.decoding import SchemaDecoder, named_schema
from spark_kafka_sink.verify.json_values import as_json, plain
from spark_kafka_sink.verify.record_errors import UndecodableError
from spark_kafka_sink.verify.schema_ids import found_schema

logger = logging.getLogger(__name__)

_MOST: Final = 10_000
_TIMEOUT_S: Final = 30.0
_CONTROLS: Final = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f]")
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

    It reads as a consumer with isolation.level=read_committed, needs no consumer group, and waits for 30 seconds at most.
    `to_pandas()` of the result, or `spark.createDataFrame(result)`, makes a DataFrame of it. To process a topic, use Spark's own
    source or a consumer.

    Args:
        topic: The topic.
        n: How many records, 1 to 10,000. The newest n of each partition may have 256 MB together.
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
    if not 1 <= n <= _MOST:
        raise UsageError(f"tail: n must be 1 to {_MOST:,}, and it is {n}")
    given = {name.lower(): value for name, value in (options or {}).items()} | {TOPIC: topic}
    if bootstrap_servers is not None:
        given[KAFKA_PREFIX + "bootstrap.servers"] = bootstrap_servers
    registry = {name: value for name, value in given.items() if is_registry_option(name)}
    has_format = any(name in given for name in _FORMATS)
    config = sink_options({name: value for name, value in given.items() if has_format or name not in registry}).producer
    deadline = time.monotonic() + _TIMEOUT_S
    with _decoders(topic, registry) as decoders, ClusterClient(config) as client:
        reader = TopicReader(client, topic, deadline, partition=partition, uncommitted=uncommitted, note=logger.warning)
        found = reader.newest(n, deadline)
        parts = {part: [_part(part, record, decoders) for _, record in found] for part in ("key", "value")}
    kind = pa.string() if decoders else pa.binary()
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


@contextmanager
def _decoders(topic: str, registry: Mapping[str, object]) -> Iterator[Mapping[str, SchemaDecoder]]:
    """Yields those of keys and values; none without a registry."""
    if not registry:
        yield {}
        return
    check_extra("confluent_kafka", "tail() with a schema registry")
    with RegistryClient(registry_config(registry)) as client:
        yield {part: SchemaDecoder(topic, part, lambda key: found_schema(key, client)) for part in ("key", "value")}


def _part(part: str, record: Record, decoders: Mapping[str, SchemaDecoder]) -> bytes | str | None:
    data = record.key if part == "key" else record.value
    if data is None or not decoders:
        return data
    problem = ""
    if named_schema(part, data, record.headers) is not None:
        try:
            return as_json(plain(decoders[part](data, record.headers)))
        except (UndecodableError, ValueError, RecursionError) as error:
            problem = f" (cannot be decoded: {error})"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    # Zeros of a number would be invisible.
    return (f"0x{data.hex()}" if _CONTROLS.search(text) else text) + problem
