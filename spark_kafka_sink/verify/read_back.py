"""Reads a topic with confluent-kafka, as a DataFrame or in this process: what is in Kafka, as another client sees it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.producer_options import ProducerConfig
from spark_kafka_sink.options.secret import Secret, resolve
from spark_kafka_sink.security.credentials import user_and_password

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from pyspark.sql import DataFrame, SparkSession

REQUEST_TIMEOUT_S = 15.0
SILENCE_S = 60.0
CONSUME_AT_ONCE = 10_000
OFFSETS_A_TASK = 100_000
"""So that all cores read a topic of one partition, and Spark's bar moves."""
MOST_TASKS = 1000

# A trap: a record of last year is older than retention.ms the moment it is written.
RETENTION = "Kafka removes records that are older than the topic's retention.ms, by their own timestamps"

RECORD_DDL = (
    "partition int, offset bigint, timestamp bigint, key binary, value binary, headers array<struct<key:string,value:binary>>"
)


class ReadBackError(Exception):
    """A topic could not be read back. Spark keeps only the text of it, so that begins with CODE."""

    CODE = "READ_BACK"

    def __init__(self, message: str) -> None:
        super().__init__(f"[{self.CODE}] {message}")


@dataclass(frozen=True, slots=True)
class TopicRange:
    """Range of offsets to read. It pickles.

    Attributes:
        topic: the topic.
        consumer: settings of confluent-kafka.
        offsets: for each partition the first offset to read and the one after the last.
        removed: how many offsets there were before the first that is left.
    """

    topic: str
    consumer: Mapping[str, str] = field(repr=False)
    offsets: Mapping[int, tuple[int, int]]
    removed: int = 0

    @property
    def partitions(self) -> int:
        return len(self.offsets)

    @property
    def size(self) -> int:
        """Number of offsets, of which some may have no record."""
        return sum(end - first for first, end in self.offsets.values())


def whole_topic(topic: str, consumer: Mapping[str, str], since_ms: int | None = None) -> TopicRange:
    """Returns what the topic holds now. Raises ReadBackError if there is no such topic, or no broker.

    consumer: settings of confluent-kafka. since_ms: a timestamp in ms; records before the first that is not older are left out.
    """
    from confluent_kafka import KafkaException, TopicPartition

    with closing(_consumer(consumer)) as client:
        try:
            described = client.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
            if described.error is not None:
                raise KafkaException(described.error)
            offsets = {
                partition: client.get_watermark_offsets(TopicPartition(topic, partition), timeout=REQUEST_TIMEOUT_S)
                for partition in described.partitions
            }
            removed = sum(first for first, _ in offsets.values())
            if since_ms is not None:
                asked = [TopicPartition(topic, partition, since_ms) for partition in offsets]
                for found in client.offsets_for_times(asked, timeout=REQUEST_TIMEOUT_S):
                    first, end = offsets[found.partition]
                    offsets[found.partition] = (max(first, found.offset) if found.offset >= 0 else end, end)
        except KafkaException as error:
            raise _failed(topic, consumer, error) from None
    return TopicRange(topic, dict(consumer), offsets, removed)


def records(spark: SparkSession, topic_range: TopicRange) -> DataFrame:
    """Returns the records, with the columns of RECORD_DDL (timestamp in milliseconds). A task reads a part of a partition."""
    pieces = [
        {partition: (begin, min(begin + OFFSETS_A_TASK, end))}
        for partition, (first, end) in sorted(topic_range.offsets.items())
        for begin in range(first, end, OFFSETS_A_TASK)
    ]

    def read_some(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for place in chain.from_iterable(batch.column(0).to_pylist() for batch in batches):
            yield from read(replace(topic_range, offsets=pieces[place]))

    return spark.range(0, len(pieces), 1, min(max(len(pieces), 1), MOST_TASKS)).mapInArrow(read_some, RECORD_DDL)


def read(topic_range: TopicRange) -> Iterator[pa.RecordBatch]:
    """Yields the records, with the columns of RECORD_DDL. Raises ReadBackError."""
    from confluent_kafka import KafkaError, KafkaException, TopicPartition

    ends = {partition: end for partition, (_, end) in topic_range.offsets.items()}
    unfinished = {partition for partition, (first, end) in topic_range.offsets.items() if first < end}
    heard = time.monotonic()
    with closing(_consumer(topic_range.consumer)) as client:
        client.assign(
            [TopicPartition(topic_range.topic, partition, topic_range.offsets[partition][0]) for partition in unfinished]
        )
        while unfinished:
            messages = client.consume(CONSUME_AT_ONCE, timeout=0.2)
            if messages:
                heard = time.monotonic()
            elif time.monotonic() > heard + SILENCE_S:
                raise ReadBackError(
                    f"topic {topic_range.topic}: nothing came for {SILENCE_S:g} s from partitions {sorted(unfinished)}, whose"
                    f" ends are {ends}"
                )
            found = []
            for message in messages:
                partition: Any = message.partition()
                error = message.error()
                if error is None:
                    offset: Any = message.offset()
                    if offset < ends[partition]:
                        found.append(
                            (partition, offset, message.timestamp()[1], message.key(), message.value(), message.headers())
                        )
                    if offset >= ends[partition] - 1:  # there may be more, because the topic may be written to meanwhile
                        unfinished.discard(partition)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # The last offset may be no record but the marker of a transaction.
                    unfinished.discard(partition)
                elif not error.retriable():
                    raise _failed(topic_range.topic, topic_range.consumer, KafkaException(error))
            yield _record_batch(found)


def _consumer(settings: Mapping[str, str]) -> Consumer:
    from confluent_kafka import Consumer, KafkaException

    with_defaults = {
        "group.id": "verify-topic",  # required, but no group is joined and nothing is committed
        "enable.auto.commit": False,
        "auto.offset.reset": "error",  # records that retention removes meanwhile are missing, not skipped
        "check.crcs": True,
        "log_level": 0,
        # A task reads little more than its part, and does not wait for a second when that much has come.
        "queued.min.messages": OFFSETS_A_TASK // 4,
        "fetch.queue.backoff.ms": 20,
        **settings,
        "enable.partition.eof": True,
    }
    try:
        return Consumer(with_defaults)
    except KafkaException as error:
        raise OptionError(f"settings of confluent-kafka's consumer: {error.args[0].str()}") from None


_KINDS = (pa.int32(), pa.int64(), pa.int64(), pa.binary(), pa.binary())


def _record_batch(found: Sequence[tuple[Any, ...]]) -> pa.RecordBatch:
    *columns, headers = zip(*found, strict=True) if found else ((),) * 6
    arrays = [pa.array(column, kind) for column, kind in zip(columns, _KINDS, strict=True)]
    names = ["partition", "offset", "timestamp", "key", "value", "headers"]
    return pa.record_batch([*arrays, _header_lists([one or () for one in headers])], names=names)


def _header_lists(headers: Sequence[Sequence[tuple[str, bytes | None]]]) -> pa.Array:
    ends = [0]
    for one in headers:
        ends.append(ends[-1] + len(one))
    flat = list(chain.from_iterable(headers))
    keys = pa.array([key for key, _ in flat], pa.string())
    values = pa.array([value for _, value in flat], pa.binary())
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pa.StructArray.from_arrays([keys, values], ["key", "value"]))


def _failed(topic: str, consumer: Mapping[str, str], error: Exception) -> ReadBackError:
    from confluent_kafka import KafkaError

    reason = error.args[0]
    if reason.code() == KafkaError._AUTO_OFFSET_RESET:
        return ReadBackError(f"topic {topic}: records were removed while they were read; {RETENTION}")
    servers = consumer.get("bootstrap.servers")
    return ReadBackError(f"topic {topic} at {servers} cannot be read: {reason.name()}: {reason.str()}")


# Settings of the consumer from the sink's own options, so that both name the cluster only once

_SAME: Final = (
    "security.protocol",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.service.name",
    "sasl.kerberos.principal",
    "sasl.kerberos.keytab",
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.extensions",
)
"""Options that have one name here and in librdkafka."""
_OTHER: Final[Mapping[str, str]] = {
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.ca.location": "https.ca.location",
}


def consumer_settings(config: ProducerConfig) -> dict[str, str]:
    """Returns the brokers, TLS and login of a producer under librdkafka's names.

    What librdkafka has no counterpart for is left out: Java's trust stores, callables and tokens from clouds.

    Raises:
        OptionError: a reference in a value cannot be resolved.
    """
    found = {"bootstrap.servers": ",".join(config.bootstrap_servers)}
    given = config.security.given()
    if not given:
        return found
    names = {**{name: name for name in _SAME}, **_OTHER}
    for name, value in given.items():
        if name in names and value is not None and not (name.startswith("sasl.") and not config.security.uses_sasl):
            found[names[name]] = value.reveal() if isinstance(value, Secret) else resolve(str(value))
    if config.security.uses_sasl and config.security.sasl_mechanism.startswith(("PLAIN", "SCRAM")):
        user, password = user_and_password(config.security)
        found |= {"sasl.mechanism": config.security.sasl_mechanism, "sasl.username": user, "sasl.password": password.reveal()}
    if given.get("ssl.truststore.type") == "PEM" and config.security.ssl_truststore_location is not None:
        found.setdefault("ssl.ca.location", config.security.ssl_truststore_location)
    if "sasl.oauthbearer.token.endpoint.url" in found:
        found["sasl.oauthbearer.method"] = "oidc"
    if not config.security.ssl_endpoint_identification_algorithm:
        found["ssl.endpoint.identification.algorithm"] = "none"
    return found
