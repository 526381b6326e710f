"""All producer options: name, type, range, default, Java's default and description.

Names and units are those of Java's `ProducerConfig`. The fields of `ProducerConfig` below are the table from which
docs/options.md, parsing and error messages are generated. `differs` says how and why an option differs from Java's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import (
    ABSENT,
    ACKS,
    BOOLEAN,
    CODECS,
    FILLED,
    INT32_MAX,
    INT64_MAX,
    MILLISECONDS,
    PLUGIN,
    PLUGINS,
    RECOVERY,
    REQUIRED,
    SERVERS,
    TEXT,
    TIME_UNITS,
    Option,
    declared,
    integer,
    nearest,
    replacement,
)
from spark_kafka_sink.options.schema_options import (
    as_json,
    is_format_option,
    is_schema_option,
    refuse_unsupported,
    schema_option_names,
)
from spark_kafka_sink.options.secret import is_provider_option, providers_of
from spark_kafka_sink.options.security_config import (
    PLAINTEXT,
    SECURITY_NAMES,
    SecurityConfig,
    is_security_option,
    read_option,
    security_config,
)

RATE_LIMITS: Mapping[str, str] = {
    "max.bytes.per.second": "Maximum rate of a producer, in bytes per second before compression. Appends wait for it. See [rate"
    " limits](performance.md#rate-limits).",
    "max.records.per.second": "Maximum rate of a producer, in records per second. Appends wait for it. See [rate"
    " limits](performance.md#rate-limits).",
}
"""Options that the sink has without the prefix `kafka.`, by name with their descriptions."""

TIMESTAMP_UNIT = (
    "Unit of timestamps that are numbers: s, ms, us or ns. They are rounded down to milliseconds. Without it they are"
    " milliseconds, and a number that is a time of the years 2001 to 2100 in another unit only is a bad row."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """Validated settings of one producer, made by `producer_config`. Its fields are the options in docs/options.md.

    Instances are immutable and hashable: a Python worker shares one producer among equal settings. Java's ProducerConfig.
    """

    bootstrap_servers: tuple[str, ...] = declared(
        "bootstrap.servers", SERVERS, REQUIRED, "Comma-separated list of brokers (host:port) to connect to first."
    )
    client_id: str = declared(
        "client.id",
        TEXT,
        "spark-kafka-sink",
        "Client name in broker logs and quotas.",
        java="",
        differs="Java numbers its producers (producer-1). A fixed name lets one broker quota apply to all of them.",
    )
    acks: int = declared(
        "acks", ACKS, -1, "Replicas that must store a batch before it is acknowledged: all (-1), the leader (1) or none (0)."
    )
    enable_idempotence: bool = declared(
        "enable.idempotence",
        BOOLEAN,
        True,
        "Whether batches are numbered, so that a retry never stores a record twice or out of order.",
    )
    batch_size: int = declared(
        "batch.size",
        integer(0),
        512 * 1024,
        "Maximum size of a partition's batch, in bytes before compression.",
        java=16384,
        differs="Larger batches mean fewer requests, and a batch reserves only the 16 KiB chunks of buffer.memory that it fills. "
        "Java reserves whole batches, and limits the estimated compressed size.",
    )
    linger_ms: int = declared(
        "linger.ms",
        MILLISECONDS,
        5,
        "Time a batch waits for more records, in ms. A flush sends it at once.",
        differs="The default is 1000 in Spark tasks: they end with a flush, and with 5 ms batches stay tiny in topics with many "
        "partitions.",
    )
    buffer_memory: int = declared(
        "buffer.memory",
        integer(0, INT64_MAX),
        32 * 1024 * 1024,
        "Memory for records that wait or are in flight, in bytes.",
        differs="In Spark, each Python worker has its own buffer.",
    )
    max_request_size: int = declared(
        "max.request.size",
        integer(0),
        1024 * 1024,
        "Maximum size of a record before compression, in bytes, and of a Produce request where produce.request.max.bytes does "
        "not allow more.",
    )
    produce_request_max_bytes: int = declared(
        "produce.request.max.bytes",
        integer(0),
        4 * 1024 * 1024,
        "Maximum size of a Produce request, in bytes; defaults to max.request.size if that is set. A larger compressed batch is "
        "sent alone. Requests keep to max.request.size with acks=0, if the broker takes over a second to answer, and if the "
        "connection is lost during the first larger ones.",
        java=ABSENT,
        differs="Java limits requests by max.request.size. 4 MiB take a third less CPU in the sender than 1 MiB. Some gateways "
        "accept less: Event Hubs closes the connection above 1,046,528 bytes.",
    )
    max_block_ms: int = declared(
        "max.block.ms", MILLISECONDS, 60_000, "Time an append may wait for metadata and for memory, in ms."
    )
    max_bytes_per_second: int | None = declared(
        "max.bytes.per.second",
        integer(1, INT64_MAX),
        None,
        RATE_LIMITS["max.bytes.per.second"],
        java=ABSENT,
        differs="Java's producer has no rate limit. Brokers can limit it by quotas.",
    )
    max_records_per_second: int | None = declared(
        "max.records.per.second",
        integer(1),
        None,
        RATE_LIMITS["max.records.per.second"],
        java=ABSENT,
        differs="Java's producer has no rate limit. Brokers can limit it by quotas.",
    )
    timestamp_unit: str | None = declared(
        "timestamp.unit", TIME_UNITS, None, TIMESTAMP_UNIT, java=ABSENT, differs="Java takes any number as milliseconds."
    )
    delivery_timeout_ms: int = declared(
        "delivery.timeout.ms", integer(0), 120_000, "Time limit from append to acknowledgement, including retries, in ms."
    )
    request_timeout_ms: int = declared(
        "request.timeout.ms", integer(0), 30_000, "Time limit for the response to a request, in ms."
    )
    retries: int = declared("retries", integer(0), INT32_MAX, "Maximum number of retries of a batch after transient errors.")
    retry_backoff_ms: int = declared("retry.backoff.ms", MILLISECONDS, 100, "Initial wait before a retry, in ms.")
    retry_backoff_max_ms: int = declared("retry.backoff.max.ms", MILLISECONDS, 1000, "Maximum wait before a retry, in ms.")
    reconnect_backoff_ms: int = declared(
        "reconnect.backoff.ms", MILLISECONDS, 50, "Initial wait before reconnecting to a broker, in ms."
    )
    reconnect_backoff_max_ms: int = declared(
        "reconnect.backoff.max.ms", MILLISECONDS, 1000, "Maximum wait before reconnecting to a broker, in ms."
    )
    max_in_flight: int = declared(
        "max.in.flight.requests.per.connection",
        integer(1),
        5,
        "Maximum number of requests in flight per broker; at most 5 with idempotence.",
    )
    compression_type: str = declared("compression.type", CODECS, "none", "Compression codec for batches.")
    compression_gzip_level: int = declared(
        "compression.gzip.level",
        integer(-1, 9),
        -1,
        "gzip level: 1 (fast) to 9 (small). 0 stores without compression; -1 is zlib's default.",
        differs="Java rejects 0.",
    )
    compression_lz4_level: int = declared(
        "compression.lz4.level",
        integer(-65537, 16),
        # On batches of 512 KiB of JSON (the mean of eight kinds), and compared with Java: level 0 is 1.19 times as fast and 1 %
        # larger, -1 is 1.34 times as fast and 4 % larger, -2 is 1.47 times as fast and 7 % larger. On batches of 16 KiB, -1 is
        # 1.10 times as fast and 4 % larger.
        -1,
        "LZ4 frame level: 0 is fast, 3 to 16 compress better, negative levels are faster (acceleration).",
        java=9,
        # Lz4BlockOutputStream's constructor
        differs="Java accepts 1 to 17; its default 9 is like 0 here. On JSON, -1 is 1.5 to 1.9 times as fast as Java's default "
        "and produces 3 to 7 % more bytes.",
    )
    compression_zstd_level: int = declared(
        "compression.zstd.level",
        integer(-131072, 22),
        1,
        "zstd level: negative levels are fast, 22 is the smallest.",
        java=3,
        # with the smaller tables that records/compression.py requests
        differs="On JSON, 1 is 2.3 times as fast as Java's default, and its output is 10 to 20 % smaller. On texts such as logs, "
        "3 is 6 to 8 % smaller than 1, and takes 1.4 to 1.7 times the CPU.",
    )
    key_serializer: object = declared(
        "key.serializer",
        PLUGIN,
        None,
        "[Serializer](serializers.md) for keys. By default bytes are sent as they are, and text as UTF-8.",
        java=REQUIRED,
        differs="Java has no default and accepts only class names.",
    )
    value_serializer: object = declared(
        "value.serializer",
        PLUGIN,
        None,
        "[Serializer](serializers.md) for values. By default bytes are sent as they are, and text as UTF-8.",
        java=REQUIRED,
        differs="Java has no default and accepts only class names.",
    )
    serializer_encoding: str = declared(
        "serializer.encoding", TEXT, "UTF-8", "Encoding of the string serializer for keys and values."
    )
    key_serializer_encoding: str | None = declared(
        "key.serializer.encoding", TEXT, None, "Encoding for keys. Defaults to serializer.encoding."
    )
    value_serializer_encoding: str | None = declared(
        "value.serializer.encoding", TEXT, None, "Encoding for values. Defaults to serializer.encoding."
    )
    list_key_serde_inner: object = declared(
        "default.list.key.serde.inner", PLUGIN, None, "Serializer of the elements, if key.serializer is the list serializer."
    )
    list_value_serde_inner: object = declared(
        "default.list.value.serde.inner", PLUGIN, None, "Serializer of the elements, if value.serializer is the list serializer."
    )
    interceptor_classes: tuple[object, ...] = declared(
        "interceptor.classes",
        PLUGINS,
        (),
        "ProducerInterceptor classes, called in this order.",
        differs="Java accepts only class names. Here interceptors are also called once per batch of columns.",
    )
    partitioner_class: object = declared(
        "partitioner.class",
        PLUGIN,
        None,
        "[Partitioner](partitioners.md). By default murmur2 of the key; records without a key are distributed by bytes.",
        differs="Java accepts only class names. Here the partitioners of librdkafka and Sarama have names too.",
    )
    partitioner_ignore_keys: bool = declared(
        "partitioner.ignore.keys", BOOLEAN, False, "Whether keys are ignored: all records are then distributed by bytes."
    )
    partitioner_adaptive: bool = declared(
        "partitioner.adaptive.partitioning.enable",
        BOOLEAN,
        True,
        "For records without a key, prefer partitions whose brokers are fast (those with short queues).",
        differs="Java inspects the queues in each round of its sender. Here it is the next choice of a partition, at most every "
        "10 ms.",
    )
    partitioner_availability_timeout_ms: int = declared(
        "partitioner.availability.timeout.ms",
        MILLISECONDS,
        0,
        "For records without a key, skip partitions whose broker has accepted nothing for this time, in ms. 0 never skips any.",
        differs="Java compares when a broker was last ready and when it last accepted something. Here queues that wait for a "
        "response are not ready, so the age of sendable batches counts.",
    )
    metadata_max_age_ms: int = declared(
        "metadata.max.age.ms",
        MILLISECONDS,
        300_000,
        "Maximum age of metadata before it is refreshed, in ms. Each refresh comes up to 20 % earlier, by chance.",
    )
    metadata_max_idle_ms: int = declared(
        "metadata.max.idle.ms", integer(5000, INT64_MAX), 300_000, "Time an unused topic stays in the metadata, in ms."
    )
    metadata_recovery_strategy: str = declared(
        "metadata.recovery.strategy",
        RECOVERY,
        "rebootstrap",
        "Behavior if no known broker can be reached: rebootstrap asks bootstrap.servers again, none does not.",
        differs="Java then discards the known brokers and topics. Here they are kept, so no connection is closed and no append "
        "waits for its topic again.",
    )
    metadata_recovery_trigger_ms: int = declared(
        "metadata.recovery.rebootstrap.trigger.ms",
        MILLISECONDS,
        300_000,
        "Time without metadata from known brokers after which bootstrap.servers are asked again, in ms.",
    )
    connections_max_idle_ms: int = declared(
        "connections.max.idle.ms",
        integer(-1, INT64_MAX),
        540_000,
        "Idle time after which a connection is closed, in ms. -1 never closes it.",
    )
    connection_setup_timeout_ms: int = declared(
        "socket.connection.setup.timeout.ms", MILLISECONDS, 10_000, "Initial time limit for one connection attempt, in ms."
    )
    connection_setup_timeout_max_ms: int = declared(
        "socket.connection.setup.timeout.max.ms",
        MILLISECONDS,
        30_000,
        "Maximum time limit for one connection attempt after repeated failures, in ms.",
    )
    send_buffer_bytes: int = declared(
        "send.buffer.bytes",
        integer(-1),
        -1,
        "Socket send buffer (SO_SNDBUF) in bytes. -1 leaves it to the operating system.",
        java=131072,
        differs="The operating system grows the buffer: a request of 1 MB takes 1 or 2 calls, where 128 KiB took 4 or 5.",
    )
    receive_buffer_bytes: int = declared(
        "receive.buffer.bytes",
        integer(-1),
        32768,
        "Socket receive buffer (SO_RCVBUF) in bytes. -1 leaves it to the operating system.",
    )
    transactional_id: str | None = declared(
        "transactional.id",
        FILLED,
        None,
        "Makes the producer transactional. A new producer with the same id fences the previous one. Requires idempotence.",
    )
    transaction_timeout_ms: int = declared(
        "transaction.timeout.ms",
        integer(1),
        60_000,
        "Time after which the coordinator aborts an open transaction, in ms. Brokers limit it (transaction.max.timeout.ms).",
    )
    metrics_num_samples: int = declared(
        "metrics.num.samples", integer(1), 2, "Number of windows that rates, averages and maxima span."
    )
    metrics_sample_window_ms: int = declared("metrics.sample.window.ms", MILLISECONDS, 30_000, "Length of one window, in ms.")
    enable_metrics_push: bool = declared(
        "enable.metrics.push",
        BOOLEAN,
        True,
        "Whether client metrics are pushed to brokers that ask for them (KIP-714). See [client metrics"
        " push](metrics.md#client-metrics-push-kip-714).",
    )
    security: SecurityConfig = field(default=PLAINTEXT)
    # Options of schemas and their registry as they were given, for the serializer that reads them. They may be secret.
    schemas: tuple[tuple[str, object], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        _check_together(self)

    @property
    def compression_level(self) -> int:
        """The level of the codec; 0 for a codec without levels."""
        levels = {"gzip": self.compression_gzip_level, "lz4": self.compression_lz4_level, "zstd": self.compression_zstd_level}
        return levels.get(self.compression_type, 0)

    def settings(self) -> dict[str, object]:
        """Returns the value of every option by name, as passed to serializers, partitioners and interceptors."""
        return {name: getattr(self, field_name) for name, field_name in _FIELD_OF.items()} | self.security.settings()


_FIELD_OF = {f.metadata["option"].name: f.name for f in fields(ProducerConfig) if f.metadata}
OPTIONS: Mapping[str, Option] = {f.metadata["option"].name: f.metadata["option"] for f in fields(ProducerConfig) if f.metadata}


def producer_config(settings: Mapping[str, object]) -> ProducerConfig:
    """Returns the settings of a producer from Kafka option names.

    As in Java, an idempotence default gives way to acks, retries or in-flight settings that rule it out. An explicit
    enable.idempotence=true does not.

    Args:
        settings: values by option name, typed or as text, with durations in ms and sizes in bytes. References such as
            `${env:NAME}` are resolved here; those in security options are resolved on use.

    Raises:
        OptionError: An option is unknown (the error suggests the nearest name), its value has a wrong type or range, or options
            contradict each other.
    """
    if not isinstance(settings, Mapping):
        raise OptionError(f"settings must be a mapping from option names to values, not {type(settings).__name__}")
    for name in settings:
        if name not in OPTIONS and not is_security_option(name) and not is_schema_option(name):
            if is_format_option(name):
                known = name.replace("format", "serializer")
                raise OptionError(
                    f"unknown option {name}: it is an option of Spark's sink; set {known}={settings[name]}", option=name
                )
            hint = replacement(name) or nearest(name, [*OPTIONS, *SECURITY_NAMES, *schema_option_names()])
            raise OptionError(f"unknown option {name}{hint}", option=name)
    refuse_unsupported(settings)
    if "bootstrap.servers" not in settings:
        raise OptionError(
            "option bootstrap.servers is required: set host:port of at least one broker", option="bootstrap.servers"
        )
    providers = providers_of(settings)
    values = {
        _FIELD_OF[name]: read_option(OPTIONS[name], value, providers) for name, value in settings.items() if name in OPTIONS
    }
    rules_it_out = values.get("acks", -1) != -1 or values.get("retries", 1) == 0 or values.get("max_in_flight", 5) > 5
    if "enable.idempotence" not in settings and rules_it_out:
        values["enable_idempotence"] = False
    # As in Java, a delivery.timeout.ms that was not set is raised to linger.ms + request.timeout.ms.
    if "delivery.timeout.ms" not in settings:
        defaults: dict[str, Any] = {name: OPTIONS[option].default for option, name in _FIELD_OF.items()} | values
        least = defaults["linger_ms"] + defaults["request_timeout_ms"]
        values["delivery_timeout_ms"] = min(max(defaults["delivery_timeout_ms"], least), INT32_MAX)
    # Whoever limits requests for a gateway by Java's option must not get larger ones.
    if "produce.request.max.bytes" not in settings and "max.request.size" in settings:
        values["produce_request_max_bytes"] = values["max_request_size"]
    schemas = {name: value for name, value in settings.items() if is_schema_option(name)}
    security = security_config({name: value for name, value in settings.items() if name not in OPTIONS and name not in schemas})
    if schemas:
        schemas |= {name: value for name, value in settings.items() if is_provider_option(name)}
    hashable = {name: _hashable(name, value) for name, value in schemas.items()}
    return ProducerConfig(**values, security=security, schemas=tuple(sorted(hashable.items())))


def _hashable(name: str, value: object) -> object:
    """Returns the value of an option, as JSON text if it is a mapping or a list."""
    try:
        return as_json(value) if isinstance(value, Mapping | list) else value
    except OptionError as error:
        raise OptionError(f"option {name}: {error.message}", option=name) from None


def check_transactional(config: ProducerConfig) -> None:
    """Raises OptionError if the producer does not support transactions."""
    if not config.enable_idempotence:
        raise OptionError(
            "option enable.idempotence: transactions require idempotence, which requires acks=all, retries and at most 5 "
            "requests in flight",
            option="enable.idempotence",
        )


def _check_together(config: ProducerConfig) -> None:
    """Java's ProducerConfig.postProcessAndValidateIdempotenceConfigs and KafkaProducer.configureDeliveryTimeout."""
    if config.enable_idempotence:
        for wrong, name, wanted in (
            (config.acks != -1, "acks", "all"),
            (config.retries == 0, "retries", "more than 0"),
            (config.max_in_flight > 5, "max.in.flight.requests.per.connection", "at most 5"),
        ):
            if wrong:
                raise OptionError(f"option {name}: must be {wanted} with enable.idempotence=true", option=name)
    elif config.transactional_id is not None:
        check_transactional(config)
    least = min(config.linger_ms + config.request_timeout_ms, INT32_MAX)
    if config.delivery_timeout_ms < least:
        raise OptionError(
            f"option delivery.timeout.ms: {config.delivery_timeout_ms} is less than linger.ms + request.timeout.ms = {least}",
            option="delivery.timeout.ms",
        )
