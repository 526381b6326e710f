"""Every producer option once: name, type, range, default, Java's default, what it does.

Names and units are those of Java's `ProducerConfig`. The fields of `ProducerConfig` below are the table: docs, parsing and
error texts are all made from it. Where a default differs from Java's, the reason stands beside it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from spark_kafka_sink.errors import OptionError

Parser = Callable[[str, object], Any]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of one option beside its type: its parser says the type and the range in words."""

    name: str
    parse: Parser
    default: object
    java: object
    doc: str


def _refuse(name: str, value: object, wanted: str) -> OptionError:
    return OptionError(f"option {name}: {value!r} is not {wanted}", option=name)


def integer(low: int, high: int = INT32_MAX) -> Parser:
    """An integer or its decimal text, between `low` and `high`, both included."""

    def parse(name: str, value: object) -> int:
        wanted = f"a whole number from {low} to {high}"
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise _refuse(name, value, wanted)
        try:
            number = int(value)
        except ValueError:
            raise _refuse(name, value, wanted) from None
        if not low <= number <= high:
            raise _refuse(name, value, wanted)
        return number

    return parse


def boolean(name: str, value: object) -> bool:
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise _refuse(name, value, "true or false")
    return text == "true"


def text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _refuse(name, value, "a string")
    return value


def one_of(*allowed: str) -> Parser:
    def parse(name: str, value: object) -> str:
        lowered = str(value).strip().lower()
        if lowered not in allowed:
            raise _refuse(name, value, f"one of {', '.join(allowed)}")
        return lowered

    return parse


def acks(name: str, value: object) -> int:
    """`all` is -1, as on the wire."""
    try:
        return {"all": -1, "-1": -1, "0": 0, "1": 1}[str(value).strip().lower()]
    except KeyError:
        raise _refuse(name, value, "one of all, -1, 0, 1") from None


def server_list(name: str, value: object) -> tuple[str, ...]:
    """`host:port,host:port` or a sequence of `host:port`; an IPv6 host stands in brackets."""
    if not isinstance(value, str | list | tuple):
        raise _refuse(name, value, "a list of host:port")
    parts = value.split(",") if isinstance(value, str) else [str(part) for part in value]
    servers = tuple(part.strip() for part in parts if part.strip())
    for server in servers:
        host, colon, port = server.rpartition(":")
        if not (host and colon and port.isdigit() and 0 < int(port) < 65536):
            raise _refuse(name, server, "a host:port")
    if not servers:
        raise _refuse(name, value, "a list of at least one host:port")
    return servers


_REQUIRED: Any = object()


def _option(name: str, parse: Parser, default: object, doc: str, *, java: object = _REQUIRED) -> Any:
    option = Option(name, parse, default, default if java is _REQUIRED else java, doc)
    if default is _REQUIRED:
        return field(metadata={"option": option})
    return field(default=default, metadata={"option": option})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The settings of one producer. Immutable and hashable: equal settings share a producer in a Python worker."""

    bootstrap_servers: tuple[str, ...] = _option(
        "bootstrap.servers", server_list, _REQUIRED, "Brokers to ask first, host:port with commas between."
    )
    client_id: str = _option("client.id", text, "spark-kafka-sink", "Name for the broker's logs and quotas.", java="")
    acks: int = _option("acks", acks, -1, "Who must have a batch before it counts: all (-1), the leader (1), nobody (0).")
    enable_idempotence: bool = _option(
        "enable.idempotence", boolean, True, "Number the batches, so that a retry is never stored twice or out of order."
    )
    batch_size: int = _option(
        "batch.size",
        integer(0),
        # Memory is charged by chunks really filled (BufferPool), so a large batch costs nothing idle.
        512 * 1024,
        "Bytes at which a partition's batch is full, before compression.",
        java=16384,
    )
    linger_ms: int = _option("linger.ms", integer(0, INT64_MAX), 5, "How long a batch waits for more records, in ms.")
    buffer_memory: int = _option(
        "buffer.memory", integer(0, INT64_MAX), 32 * 1024 * 1024, "Bytes of records that may wait or be in flight."
    )
    max_request_size: int = _option(
        "max.request.size", integer(0), 1024 * 1024, "Bytes a record, and a Produce request, may have at most."
    )
    max_block_ms: int = _option(
        "max.block.ms", integer(0, INT64_MAX), 60_000, "How long an append may wait for metadata and for memory, in ms."
    )
    delivery_timeout_ms: int = _option(
        "delivery.timeout.ms", integer(0), 120_000, "From append to success or failure, retries included, in ms."
    )
    request_timeout_ms: int = _option("request.timeout.ms", integer(0), 30_000, "How long a request waits for its answer, in ms.")
    retries: int = _option("retries", integer(0), INT32_MAX, "How often a batch is sent again after a passing error.")
    retry_backoff_ms: int = _option("retry.backoff.ms", integer(0, INT64_MAX), 100, "First wait before a retry, in ms.")
    retry_backoff_max_ms: int = _option(
        "retry.backoff.max.ms", integer(0, INT64_MAX), 1000, "Longest wait before a retry, in ms."
    )
    reconnect_backoff_ms: int = _option(
        "reconnect.backoff.ms", integer(0, INT64_MAX), 50, "First wait before connecting to a broker again, in ms."
    )
    reconnect_backoff_max_ms: int = _option(
        "reconnect.backoff.max.ms", integer(0, INT64_MAX), 1000, "Longest wait before connecting to a broker again, in ms."
    )
    max_in_flight: int = _option(
        "max.in.flight.requests.per.connection", integer(1), 5, "Requests a broker may owe us; at most 5 with idempotence."
    )
    compression_type: str = _option(
        "compression.type", one_of("none", "gzip", "snappy", "lz4", "zstd"), "none", "How batches are compressed."
    )
    compression_gzip_level: int = _option("compression.gzip.level", integer(-1, 9), -1, "1 fast to 9 small; -1 is zlib's own.")
    compression_lz4_level: int = _option(
        "compression.lz4.level",
        integer(-65537, 16),
        0,
        "LZ4 frame level: 0 fast, 3 to 16 high compression, below 0 faster (acceleration).",
        # Java's level 9 is lz4-java's high compressor: a tenth of the speed for a few per cent of size.
        java=9,
    )
    compression_zstd_level: int = _option("compression.zstd.level", integer(-131072, 22), 1, "Below 0 fast, 22 small.", java=3)
    partitioner_ignore_keys: bool = _option(
        "partitioner.ignore.keys", boolean, False, "Choose partitions by bytes written even for records with a key."
    )
    metadata_max_age_ms: int = _option(
        "metadata.max.age.ms", integer(0, INT64_MAX), 300_000, "Age at which metadata is asked for again, in ms."
    )
    metadata_max_idle_ms: int = _option(
        "metadata.max.idle.ms", integer(5000, INT64_MAX), 300_000, "How long an unused topic is kept in metadata, in ms."
    )
    connections_max_idle_ms: int = _option(
        "connections.max.idle.ms",
        integer(-1, INT64_MAX),
        540_000,
        "Idle time after which a connection is closed, in ms; -1 never.",
    )
    connection_setup_timeout_ms: int = _option(
        "socket.connection.setup.timeout.ms", integer(0, INT64_MAX), 10_000, "How long one connect may take at first, in ms."
    )
    connection_setup_timeout_max_ms: int = _option(
        "socket.connection.setup.timeout.max.ms",
        integer(0, INT64_MAX),
        30_000,
        "How long one connect may take after failures, in ms.",
    )
    send_buffer_bytes: int = _option("send.buffer.bytes", integer(-1), 131072, "SO_SNDBUF; -1 leaves it to the system.")
    receive_buffer_bytes: int = _option("receive.buffer.bytes", integer(-1), 32768, "SO_RCVBUF; -1 leaves it to the system.")

    def __post_init__(self) -> None:
        _check_together(self)


OPTIONS: Mapping[str, Option] = {f.metadata["option"].name: f.metadata["option"] for f in fields(ProducerConfig)}
_FIELD_OF = {f.metadata["option"].name: f.name for f in fields(ProducerConfig)}


def producer_config(settings: Mapping[str, object]) -> ProducerConfig:
    """The settings of a producer from Kafka's own option names.

    Raises `OptionError` for an unknown name (with the nearest known one), a wrong type or range, or options that exclude
    each other. As in Java, idempotence that was not asked for gives way to acks, retries or in-flight settings that rule it
    out; idempotence that was asked for does not.
    """
    for name in settings:
        if name not in OPTIONS:
            raise OptionError(f"unknown option {name}{nearest(name, OPTIONS)}", option=name)
    if "bootstrap.servers" not in settings:
        raise OptionError("option bootstrap.servers is required: host:port of a broker", option="bootstrap.servers")
    values = {_FIELD_OF[name]: OPTIONS[name].parse(name, value) for name, value in settings.items()}
    if "enable.idempotence" not in settings and _rules_out_idempotence(values):
        values["enable_idempotence"] = False
    # Java: delivery.timeout.ms that was not set is raised to what linger and request timeout need.
    if "delivery.timeout.ms" not in settings:
        least = values.get("linger_ms", 5) + values.get("request_timeout_ms", 30_000)
        values["delivery_timeout_ms"] = min(max(120_000, least), INT32_MAX)
    return ProducerConfig(**values)


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or nothing when no known name is near."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _rules_out_idempotence(values: Mapping[str, Any]) -> bool:
    return bool(values.get("acks", -1) != -1 or values.get("retries", 1) == 0 or values.get("max_in_flight", 5) > 5)


def _check_together(config: ProducerConfig) -> None:
    """Java's ProducerConfig.postProcessAndValidateIdempotenceConfigs and KafkaProducer.configureDeliveryTimeout."""
    if config.enable_idempotence:
        for wrong, name, wanted in (
            (config.acks != -1, "acks", "all"),
            (config.retries == 0, "retries", "more than 0"),
            (config.max_in_flight > 5, "max.in.flight.requests.per.connection", "at most 5"),
        ):
            if wrong:
                raise OptionError(f"option {name}: enable.idempotence=true needs it to be {wanted}", option=name)
    least = min(config.linger_ms + config.request_timeout_ms, INT32_MAX)
    if config.delivery_timeout_ms < least:
        raise OptionError(
            f"option delivery.timeout.ms: {config.delivery_timeout_ms} is less than linger.ms + request.timeout.ms = {least}",
            option="delivery.timeout.ms",
        )


def with_options(config: ProducerConfig, **changes: Any) -> ProducerConfig:
    """A copy with some fields (Python names) changed, checked again."""
    return replace(config, **changes)
