"""Every producer option once: name, type, range, default, Java's default, what it does.

Names and units are those of Java's `ProducerConfig`. The fields of `ProducerConfig` below are the table: docs/options.md,
parsing and error texts are all made from it. Where a default or what an option does differs from Java, `differs` says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.option import (
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
    Option,
    declared,
    integer,
    nearest,
)
from spark_kafka_sink.secret import providers_of
from spark_kafka_sink.security_config import (
    PLAINTEXT,
    SECURITY_NAMES,
    SecurityConfig,
    is_security_option,
    read_option,
    security_config,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The settings of one producer, checked; `producer_config` makes one. Its fields are the options of docs/options.md.

    Immutable and hashable: equal settings share a producer in a Python worker. Java's ProducerConfig.
    """

    bootstrap_servers: tuple[str, ...] = declared(
        "bootstrap.servers", SERVERS, REQUIRED, "Brokers to ask first, host:port with commas between."
    )
    client_id: str = declared(
        "client.id",
        TEXT,
        "spark-kafka-sink",
        "Name for the broker's logs and quotas.",
        java="",
        differs="Java numbers producers (producer-1, producer-2); one name for all tells a broker's quotas whose they are.",
    )
    acks: int = declared("acks", ACKS, -1, "Who must have a batch before it counts: all (-1), the leader (1), nobody (0).")
    enable_idempotence: bool = declared(
        "enable.idempotence", BOOLEAN, True, "Number the batches, so that a retry is never stored twice or out of order."
    )
    batch_size: int = declared(
        "batch.size",
        integer(0),
        512 * 1024,
        "Bytes at which a partition's batch is full, before compression.",
        java=16384,
        differs="Java takes buffer.memory by whole batches; here by the chunks of 16 KiB that are filled, so a large batch costs"
        " nothing idle, and there are fewer and larger requests. Java fills batches by the compressed size that it expects.",
    )
    linger_ms: int = declared(
        "linger.ms",
        MILLISECONDS,
        5,
        "How long a batch waits for more records, in ms; a flush does not wait.",
        differs="In Spark's tasks the default is 1000: a task ends with a flush, so nobody waits for it, and after 5 ms batches"
        " of topics with many partitions are still tiny.",
    )
    buffer_memory: int = declared(
        "buffer.memory",
        integer(0, INT64_MAX),
        32 * 1024 * 1024,
        "Bytes of records that may wait or be in flight.",
        differs="In Spark each Python worker has as much.",
    )
    max_request_size: int = declared(
        "max.request.size",
        integer(0),
        1024 * 1024,
        "Bytes that a record, before compression, and a Produce request may have at most. A batch that is larger even when it is"
        " compressed goes in a request of its own.",
    )
    max_block_ms: int = declared(
        "max.block.ms", MILLISECONDS, 60_000, "How long an append may wait for metadata and for memory, in ms."
    )
    delivery_timeout_ms: int = declared(
        "delivery.timeout.ms", integer(0), 120_000, "From append to success or failure, retries included, in ms."
    )
    request_timeout_ms: int = declared(
        "request.timeout.ms", integer(0), 30_000, "How long a request waits for its answer, in ms."
    )
    retries: int = declared("retries", integer(0), INT32_MAX, "How often a batch is sent again after a passing error.")
    retry_backoff_ms: int = declared("retry.backoff.ms", MILLISECONDS, 100, "First wait before a retry, in ms.")
    retry_backoff_max_ms: int = declared("retry.backoff.max.ms", MILLISECONDS, 1000, "Longest wait before a retry, in ms.")
    reconnect_backoff_ms: int = declared(
        "reconnect.backoff.ms", MILLISECONDS, 50, "First wait before connecting to a broker again, in ms."
    )
    reconnect_backoff_max_ms: int = declared(
        "reconnect.backoff.max.ms", MILLISECONDS, 1000, "Longest wait before connecting to a broker again, in ms."
    )
    max_in_flight: int = declared(
        "max.in.flight.requests.per.connection", integer(1), 5, "Requests a broker may owe us; at most 5 with idempotence."
    )
    compression_type: str = declared("compression.type", CODECS, "none", "How batches are compressed.")
    compression_gzip_level: int = declared(
        "compression.gzip.level", integer(-1, 9), -1, "1 fast to 9 small; 0 stores; -1 is zlib's own.", differs="Java refuses 0."
    )
    compression_lz4_level: int = declared(
        "compression.lz4.level",
        integer(-65537, 16),
        # 1,432 against 628 MB/s on rows of 100 B of hexadecimal digits, 1,414 against 1,262 on JSON.
        -3,
        "LZ4 frame level: 0 fast, 3 to 16 high compression, below 0 faster (acceleration).",
        java=9,
        # Lz4BlockOutputStream's constructor
        differs="Java takes 1 to 17, and its 9 is lz4-java's fast compressor, which is like 0 here; -3 is up to twice as fast on"
        " rows of 100 B for 1 to 6 % of size.",
    )
    compression_zstd_level: int = declared(
        "compression.zstd.level",
        integer(-131072, 22),
        1,
        "Below 0 fast, 22 small.",
        java=3,
        # with the smaller tables that records/compression.py asks for
        differs="1 is 1.2 to 1.7 times as fast as 3 and, with tables made for batches, no larger.",
    )
    key_serializer: object = declared(
        "key.serializer",
        PLUGIN,
        None,
        "What makes bytes of a key: [names](serializers.md); without it bytes stay as they are and text becomes UTF-8.",
        java=REQUIRED,
        differs="Java has no default, and knows class names only.",
    )
    value_serializer: object = declared(
        "value.serializer",
        PLUGIN,
        None,
        "What makes bytes of a value: [names](serializers.md); without it bytes stay as they are and text becomes UTF-8.",
        java=REQUIRED,
        differs="Java has no default, and knows class names only.",
    )
    serializer_encoding: str = declared(
        "serializer.encoding", TEXT, "UTF-8", "Encoding of the string serializer, for keys and values."
    )
    key_serializer_encoding: str | None = declared(
        "key.serializer.encoding", TEXT, None, "Encoding of keys, if not serializer.encoding."
    )
    value_serializer_encoding: str | None = declared(
        "value.serializer.encoding", TEXT, None, "Encoding of values, if not serializer.encoding."
    )
    list_key_serde_inner: object = declared(
        "default.list.key.serde.inner", PLUGIN, None, "What the list serializer makes bytes of a key's elements with."
    )
    list_value_serde_inner: object = declared(
        "default.list.value.serde.inner", PLUGIN, None, "What the list serializer makes bytes of a value's elements with."
    )
    interceptor_classes: tuple[object, ...] = declared(
        "interceptor.classes",
        PLUGINS,
        (),
        "ProducerInterceptors, called in this order.",
        differs="Java knows class names only, and calls for each record; here also for each batch of columns.",
    )
    partitioner_class: object = declared(
        "partitioner.class",
        PLUGIN,
        None,
        "What chooses partitions: [names](partitioners.md); without it murmur2 of the key, or by bytes without a key.",
        differs="Java knows class names only; here librdkafka's and Sarama's have names too.",
    )
    partitioner_ignore_keys: bool = declared(
        "partitioner.ignore.keys", BOOLEAN, False, "Choose partitions by bytes written even for records with a key."
    )
    partitioner_adaptive: bool = declared(
        "partitioner.adaptive.partitioning.enable",
        BOOLEAN,
        True,
        "Without a key, send less to partitions whose brokers are slow (those with longer queues).",
        differs="Java looks at the queues in each round of its sender; here when another partition is chosen, at most every"
        " 10 ms: 1,000 queues take 0.1 ms.",
    )
    partitioner_availability_timeout_ms: int = declared(
        "partitioner.availability.timeout.ms",
        MILLISECONDS,
        0,
        "Without a key, leave out partitions whose broker has taken nothing for so long, in ms; 0 never.",
        differs="Java compares when a broker was last ready and when it took something; here it is how long batches have waited"
        " that could be sent, as queues that wait for an answer are not ready.",
    )
    metadata_max_age_ms: int = declared(
        "metadata.max.age.ms", MILLISECONDS, 300_000, "Age at which metadata is asked for again, in ms."
    )
    metadata_max_idle_ms: int = declared(
        "metadata.max.idle.ms", integer(5000, INT64_MAX), 300_000, "How long an unused topic is kept in metadata, in ms."
    )
    metadata_recovery_strategy: str = declared(
        "metadata.recovery.strategy",
        RECOVERY,
        "rebootstrap",
        "What to do when no known broker can be reached: ask bootstrap.servers again, or nothing.",
        differs="Java forgets the known brokers and topics then; here bootstrap.servers are asked beside them, so that a rolling"
        " restart cuts no connection and no append waits for its topic again.",
    )
    metadata_recovery_trigger_ms: int = declared(
        "metadata.recovery.rebootstrap.trigger.ms",
        MILLISECONDS,
        300_000,
        "Ask bootstrap.servers again when metadata could not be had from known brokers for so long, in ms.",
    )
    connections_max_idle_ms: int = declared(
        "connections.max.idle.ms",
        integer(-1, INT64_MAX),
        540_000,
        "Idle time after which a connection is closed, in ms; -1 never.",
    )
    connection_setup_timeout_ms: int = declared(
        "socket.connection.setup.timeout.ms", MILLISECONDS, 10_000, "How long one connect may take at first, in ms."
    )
    connection_setup_timeout_max_ms: int = declared(
        "socket.connection.setup.timeout.max.ms", MILLISECONDS, 30_000, "How long one connect may take after failures, in ms."
    )
    send_buffer_bytes: int = declared(
        "send.buffer.bytes",
        integer(-1),
        -1,
        "SO_SNDBUF; -1 leaves it to the system.",
        java=131072,
        differs="The system grows it with the connection: a request of 1 MB goes out in 1 or 2 calls where 128 KiB took 4 or 5.",
    )
    receive_buffer_bytes: int = declared("receive.buffer.bytes", integer(-1), 32768, "SO_RCVBUF; -1 leaves it to the system.")
    transactional_id: str | None = declared(
        "transactional.id",
        FILLED,
        None,
        "Makes the producer transactional; only one producer at a time may have an id, the latest one. Needs idempotence.",
    )
    transaction_timeout_ms: int = declared(
        "transaction.timeout.ms",
        integer(1),
        60_000,
        "How long a transaction may be open before its coordinator aborts it, in ms; brokers set a limit"
        " (transaction.max.timeout.ms).",
    )
    metrics_num_samples: int = declared("metrics.num.samples", integer(1), 2, "Windows that rates, averages and maxima span.")
    metrics_sample_window_ms: int = declared(
        "metrics.sample.window.ms", MILLISECONDS, 30_000, "Length of one such window, in ms."
    )
    security: SecurityConfig = field(default=PLAINTEXT)

    def __post_init__(self) -> None:
        _check_together(self)

    def settings(self) -> dict[str, object]:
        """Every option's value by its name: what serializers, partitioners and interceptors are configured with."""
        return {name: getattr(self, field_name) for name, field_name in _FIELD_OF.items()} | self.security.settings()


_FIELD_OF = {f.metadata["option"].name: f.name for f in fields(ProducerConfig) if f.metadata}
OPTIONS: Mapping[str, Option] = {f.metadata["option"].name: f.metadata["option"] for f in fields(ProducerConfig) if f.metadata}


def producer_config(settings: Mapping[str, object]) -> ProducerConfig:
    """The settings of a producer from Kafka's own option names.

    settings: values by those names, of their type or as text, durations in ms and sizes in bytes. References such as
    `${env:NAME}` are read here, those of texts of security only where they are used.

    Raises `OptionError` for an unknown name (with the nearest known one), a wrong type or range, or options that exclude
    each other. As in Java, idempotence that was not asked for gives way to acks, retries or in-flight settings that rule it
    out; idempotence that was asked for does not.
    """
    if not isinstance(settings, Mapping):
        raise OptionError(f"settings must be a mapping of option names and values, there is {type(settings).__name__}")
    for name in settings:
        if name not in OPTIONS and not is_security_option(name):
            raise OptionError(f"unknown option {name}{nearest(name, [*OPTIONS, *SECURITY_NAMES])}", option=name)
    if "bootstrap.servers" not in settings:
        raise OptionError("option bootstrap.servers is required: host:port of a broker", option="bootstrap.servers")
    providers = providers_of(settings)
    values = {
        _FIELD_OF[name]: read_option(OPTIONS[name], value, providers) for name, value in settings.items() if name in OPTIONS
    }
    if "enable.idempotence" not in settings and _rules_out_idempotence(values):
        values["enable_idempotence"] = False
    # Java: delivery.timeout.ms that was not set is raised to what linger and request timeout need.
    if "delivery.timeout.ms" not in settings:
        defaults: dict[str, Any] = {name: OPTIONS[option].default for option, name in _FIELD_OF.items()} | values
        least = defaults["linger_ms"] + defaults["request_timeout_ms"]
        values["delivery_timeout_ms"] = min(max(defaults["delivery_timeout_ms"], least), INT32_MAX)
    security = security_config({name: value for name, value in settings.items() if name not in OPTIONS})
    return ProducerConfig(**values, security=security)


def check_transactional(config: ProducerConfig) -> None:
    """OptionError for a producer that cannot write in transactions."""
    if not config.enable_idempotence:
        raise OptionError(
            "option enable.idempotence: transactions need it, and so acks=all, retries and at most 5 requests in flight",
            option="enable.idempotence",
        )


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
    elif config.transactional_id is not None:
        check_transactional(config)
    least = min(config.linger_ms + config.request_timeout_ms, INT32_MAX)
    if config.delivery_timeout_ms < least:
        raise OptionError(
            f"option delivery.timeout.ms: {config.delivery_timeout_ms} is less than linger.ms + request.timeout.ms = {least}",
            option="delivery.timeout.ms",
        )
