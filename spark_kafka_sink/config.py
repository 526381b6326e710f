"""Every producer option once: name, type, range, default, Java's default, what it does.

Names and units are those of Java's `ProducerConfig`. The fields of `ProducerConfig` below are the table: docs, parsing and
error texts are all made from it. Where a default differs from Java's, the reason stands beside it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from spark_kafka_sink.errors import OptionError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Kind:
    """A type with its range: what is wanted, in words, and how a value is read; reading raises ValueError for anything else."""

    wanted: str
    read: Callable[[object], Any]


@dataclass(frozen=True, slots=True)
class Option:
    """What is known of one option. `default` and `java` are values as read; _REQUIRED: there is no default."""

    name: str
    kind: Kind
    default: object
    java: object
    doc: str

    def parse(self, value: object) -> Any:
        try:
            return self.kind.read(value)
        except ValueError:
            raise OptionError(f"option {self.name}: {value!r} is not {self.kind.wanted}", option=self.name) from None


def _integer(low: int, high: int = INT32_MAX) -> Kind:
    """An integer or its decimal text, between `low` and `high`, both included."""

    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str) or not low <= int(value) <= high:
            raise ValueError
        return int(value)

    return Kind(f"a whole number from {low} to {high}", read)


def _one_of(**meanings: object) -> Kind:
    """One of some words, in any case, each with what it means."""

    def read(value: object) -> object:
        text = str(value).strip().lower()
        if text not in meanings:
            raise ValueError
        return meanings[text]

    return Kind("one of " + ", ".join(meanings), read)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError
    return value


def _servers(value: object) -> tuple[str, ...]:
    """`host:port,host:port` or a sequence of `host:port`; an IPv6 host stands in brackets."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else ()
    servers = tuple(str(part).strip() for part in parts if str(part).strip())
    for server in servers:
        if ":" not in server or server.endswith((":", "]")):
            text = f"option bootstrap.servers: {server!r} has no port: write {server.rstrip(':')}:9092"
            raise OptionError(text, option="bootstrap.servers")
        host, _, port = server.rpartition(":")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            raise ValueError
    if not servers:
        raise ValueError
    return servers


def _plugin(value: object) -> object:
    """A name, a class or an object; what it stands for is known where it is used."""
    if value is None or isinstance(value, bool | int | float | list | tuple | dict) or not value:
        raise ValueError
    return value.strip() if isinstance(value, str) else value


def _plugins(value: object) -> tuple[object, ...]:
    """Names with commas between, or a sequence of names, classes and objects."""
    parts = value.split(",") if isinstance(value, str) else value if isinstance(value, list | tuple) else (value,)
    return tuple(_plugin(part) for part in parts if not (isinstance(part, str) and not part.strip()))


MILLISECONDS = _integer(0, INT64_MAX)
TEXT = Kind("a string", _text)
BOOLEAN = _one_of(true=True, false=False)
CODECS = _one_of(**{name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")})
ACKS = _one_of(**{"all": -1, "-1": -1, "0": 0, "1": 1})  # all is -1, as on the wire
SERVERS = Kind("a list of host:port with commas between", _servers)
PLUGIN = Kind("a short name, a dotted name, a class or an object", _plugin)
PLUGINS = Kind("dotted names with commas between, or a list of classes or objects", _plugins)
RECOVERY = _one_of(rebootstrap="rebootstrap", none="none")

_REQUIRED: Any = object()


def _option(name: str, kind: Kind, default: object, doc: str, *, java: object = _REQUIRED) -> Any:
    option = Option(name, kind, default, default if java is _REQUIRED else java, doc)
    if default is _REQUIRED:
        return field(metadata={"option": option})
    return field(default=default, metadata={"option": option})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The settings of one producer. Immutable and hashable: equal settings share a producer in a Python worker."""

    bootstrap_servers: tuple[str, ...] = _option(
        "bootstrap.servers", SERVERS, _REQUIRED, "Brokers to ask first, host:port with commas between."
    )
    client_id: str = _option("client.id", TEXT, "spark-kafka-sink", "Name for the broker's logs and quotas.", java="")
    acks: int = _option("acks", ACKS, -1, "Who must have a batch before it counts: all (-1), the leader (1), nobody (0).")
    enable_idempotence: bool = _option(
        "enable.idempotence", BOOLEAN, True, "Number the batches, so that a retry is never stored twice or out of order."
    )
    batch_size: int = _option(
        "batch.size",
        _integer(0),
        # Memory is charged by chunks really filled (BufferPool), so a large batch costs nothing idle.
        512 * 1024,
        "Bytes at which a partition's batch is full, before compression.",
        java=16384,
    )
    linger_ms: int = _option(
        "linger.ms",
        MILLISECONDS,
        5,
        "How long a batch waits for more records, in ms; a flush does not wait. In Spark's tasks 1000.",
    )
    buffer_memory: int = _option(
        "buffer.memory", _integer(0, INT64_MAX), 32 * 1024 * 1024, "Bytes of records that may wait or be in flight."
    )
    max_request_size: int = _option(
        "max.request.size", _integer(0), 1024 * 1024, "Bytes a record, and a Produce request, may have at most."
    )
    max_block_ms: int = _option(
        "max.block.ms", MILLISECONDS, 60_000, "How long an append may wait for metadata and for memory, in ms."
    )
    delivery_timeout_ms: int = _option(
        "delivery.timeout.ms", _integer(0), 120_000, "From append to success or failure, retries included, in ms."
    )
    request_timeout_ms: int = _option(
        "request.timeout.ms", _integer(0), 30_000, "How long a request waits for its answer, in ms."
    )
    retries: int = _option("retries", _integer(0), INT32_MAX, "How often a batch is sent again after a passing error.")
    retry_backoff_ms: int = _option("retry.backoff.ms", MILLISECONDS, 100, "First wait before a retry, in ms.")
    retry_backoff_max_ms: int = _option("retry.backoff.max.ms", MILLISECONDS, 1000, "Longest wait before a retry, in ms.")
    reconnect_backoff_ms: int = _option(
        "reconnect.backoff.ms", MILLISECONDS, 50, "First wait before connecting to a broker again, in ms."
    )
    reconnect_backoff_max_ms: int = _option(
        "reconnect.backoff.max.ms", MILLISECONDS, 1000, "Longest wait before connecting to a broker again, in ms."
    )
    max_in_flight: int = _option(
        "max.in.flight.requests.per.connection", _integer(1), 5, "Requests a broker may owe us; at most 5 with idempotence."
    )
    compression_type: str = _option("compression.type", CODECS, "none", "How batches are compressed.")
    compression_gzip_level: int = _option("compression.gzip.level", _integer(-1, 9), -1, "1 fast to 9 small; -1 is zlib's own.")
    compression_lz4_level: int = _option(
        "compression.lz4.level",
        _integer(-65537, 16),
        # Twice the speed of 0 on rows of 100 B for 1 to 6 % of size: 1,432 against 628 MB/s on hexadecimal digits, 1,414 against
        # 1,262 on JSON. Java's 9 means lz4-java's fast compressor, which level 0 is like (Lz4BlockOutputStream's constructor).
        -3,
        "LZ4 frame level: 0 fast, 3 to 16 high compression, below 0 faster (acceleration).",
        java=9,
    )
    # 1 is 1.2 to 1.7 times as fast as 3 and, with the smaller tables that records/compression.py asks for, no larger.
    compression_zstd_level: int = _option("compression.zstd.level", _integer(-131072, 22), 1, "Below 0 fast, 22 small.", java=3)
    key_serializer: object = _option(
        "key.serializer", PLUGIN, None, "What makes bytes of a key; without it bytes stay as they are and text becomes UTF-8."
    )
    value_serializer: object = _option(
        "value.serializer", PLUGIN, None, "What makes bytes of a value; without it bytes stay as they are and text becomes UTF-8."
    )
    serializer_encoding: str = _option(
        "serializer.encoding", TEXT, "UTF-8", "Encoding of the string serializer, for keys and values."
    )
    key_serializer_encoding: str | None = _option(
        "key.serializer.encoding", TEXT, None, "Encoding of keys, if not serializer.encoding."
    )
    value_serializer_encoding: str | None = _option(
        "value.serializer.encoding", TEXT, None, "Encoding of values, if not serializer.encoding."
    )
    list_key_serde_inner: object = _option(
        "default.list.key.serde.inner", PLUGIN, None, "What the list serializer makes bytes of a key's elements with."
    )
    list_value_serde_inner: object = _option(
        "default.list.value.serde.inner", PLUGIN, None, "What the list serializer makes bytes of a value's elements with."
    )
    interceptor_classes: tuple[object, ...] = _option(
        "interceptor.classes", PLUGINS, (), "ProducerInterceptors, called in this order."
    )
    partitioner_class: object = _option(
        "partitioner.class", PLUGIN, None, "What chooses partitions; without it murmur2 of the key, or by bytes without a key."
    )
    partitioner_ignore_keys: bool = _option(
        "partitioner.ignore.keys", BOOLEAN, False, "Choose partitions by bytes written even for records with a key."
    )
    partitioner_adaptive: bool = _option(
        "partitioner.adaptive.partitioning.enable",
        BOOLEAN,
        True,
        "Without a key, send less to partitions whose brokers are slow (those with longer queues).",
    )
    partitioner_availability_timeout_ms: int = _option(
        "partitioner.availability.timeout.ms",
        MILLISECONDS,
        0,
        "Without a key, leave out partitions whose broker has taken nothing for so long, in ms; 0 never.",
    )
    metadata_max_age_ms: int = _option(
        "metadata.max.age.ms", MILLISECONDS, 300_000, "Age at which metadata is asked for again, in ms."
    )
    metadata_max_idle_ms: int = _option(
        "metadata.max.idle.ms", _integer(5000, INT64_MAX), 300_000, "How long an unused topic is kept in metadata, in ms."
    )
    metadata_recovery_strategy: str = _option(
        "metadata.recovery.strategy",
        RECOVERY,
        "rebootstrap",
        "What to do when no known broker can be reached: ask bootstrap.servers again, or nothing.",
    )
    metadata_recovery_trigger_ms: int = _option(
        "metadata.recovery.rebootstrap.trigger.ms",
        MILLISECONDS,
        300_000,
        "Ask bootstrap.servers again when metadata could not be had from known brokers for so long, in ms.",
    )
    connections_max_idle_ms: int = _option(
        "connections.max.idle.ms",
        _integer(-1, INT64_MAX),
        540_000,
        "Idle time after which a connection is closed, in ms; -1 never.",
    )
    connection_setup_timeout_ms: int = _option(
        "socket.connection.setup.timeout.ms", MILLISECONDS, 10_000, "How long one connect may take at first, in ms."
    )
    connection_setup_timeout_max_ms: int = _option(
        "socket.connection.setup.timeout.max.ms",
        MILLISECONDS,
        30_000,
        "How long one connect may take after failures, in ms.",
    )
    send_buffer_bytes: int = _option(
        "send.buffer.bytes",
        _integer(-1),
        # The system grows it with the connection: a request of 1 MB goes out in 1 or 2 calls where 128 KiB took 4 or 5.
        -1,
        "SO_SNDBUF; -1 leaves it to the system.",
        java=131072,
    )
    receive_buffer_bytes: int = _option("receive.buffer.bytes", _integer(-1), 32768, "SO_RCVBUF; -1 leaves it to the system.")
    metrics_num_samples: int = _option("metrics.num.samples", _integer(1), 2, "Windows that rates, averages and maxima span.")
    metrics_sample_window_ms: int = _option("metrics.sample.window.ms", MILLISECONDS, 30_000, "Length of one such window, in ms.")

    def __post_init__(self) -> None:
        _check_together(self)

    def settings(self) -> dict[str, object]:
        """Every option's value by its name: what serializers, partitioners and interceptors are configured with."""
        return {f.metadata["option"].name: getattr(self, f.name) for f in fields(self)}


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
    values = {_FIELD_OF[name]: OPTIONS[name].parse(value) for name, value in settings.items()}
    if "enable.idempotence" not in settings and _rules_out_idempotence(values):
        values["enable_idempotence"] = False
    # Java: delivery.timeout.ms that was not set is raised to what linger and request timeout need.
    if "delivery.timeout.ms" not in settings:
        defaults: dict[str, Any] = {name: OPTIONS[option].default for option, name in _FIELD_OF.items()} | values
        least = defaults["linger_ms"] + defaults["request_timeout_ms"]
        values["delivery_timeout_ms"] = min(max(defaults["delivery_timeout_ms"], least), INT32_MAX)
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


def options_table() -> str:
    """Every option as a row of a Markdown table; docs/options.md is its output."""
    rows = ["| option | takes | default | Java's default | what it does |", "| --- | --- | --- | --- | --- |"]
    for option in OPTIONS.values():
        default, java = ("required" if value is _REQUIRED else f"`{value}`" for value in (option.default, option.java))
        rows.append(f"| `{option.name}` | {option.kind.wanted} | {default} | {java} | {option.doc} |")
    return "\n".join(rows) + "\n"
