"""The options that users write: the sink's own, and the producer's with the prefix `kafka.`.

The driver parses them before any task starts. `plugin_checks.py` checks the plug-ins that they name.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.error_options import ERROR_OPTIONS, FAIL, ErrorOptions, connects_name, error_options
from spark_kafka_sink.options.guarantee_options import (
    COMMIT_LOG_PARTITIONS,
    COMMIT_LOG_REPLICATION,
    COMMIT_LOG_START,
    COMMIT_LOG_TOPIC,
    GUARANTEE,
    QUERY_NAME,
    SINK_NAME,
    TRANSACTIONAL_ID_PREFIX,
    ExactlyOnce,
    Guarantee,
    exactly_once_options,
    guarantee_of,
    with_guarantee,
)
from spark_kafka_sink.options.option import (
    HARMLESS,
    INT64_MAX,
    REFUSED,
    SinkOption,
    nearest,
    replacement,
    topic_name,
    why_refused,
)
from spark_kafka_sink.options.producer_options import OPTIONS, RATE_LIMITS, ProducerConfig, producer_config
from spark_kafka_sink.options.record_options import (
    HEADER_PREFIX,
    NAMED_COLUMNS,
    RECORD_OPTIONS,
    RecordOptions,
    check_header_names,
    record_options,
)
from spark_kafka_sink.options.registry_options import REGISTRY_OPTIONS
from spark_kafka_sink.options.report_options import REPORT_OPTIONS, report_topic
from spark_kafka_sink.options.schema_options import OF_ONE_PART, is_schema_option, refuse_unsupported, schema_option_names
from spark_kafka_sink.options.security_config import SECURITY_NAMES, is_security_option, security_warnings
from spark_kafka_sink.options.sink_schema_options import SCHEMA_SINK_OPTIONS, SchemaSettings, schema_settings
from spark_kafka_sink.options.topic_creation_options import (
    CREATE_CONFIG,
    CREATE_PARTITIONS,
    CREATE_REPLICATION,
    TopicCreation,
    is_creation_option,
    topic_creation,
)

logger = logging.getLogger(__name__)

KAFKA_PREFIX = "kafka."
TOPIC = "topic"
INCLUDE_HEADERS = "includeheaders"  # Spark's own Kafka connector has it

# A task ends with a flush, so this delays no task. An append over 1,000 partitions takes longer than 5 ms, which would give
# 17,000 to 58,000 batches per million rows. 100 ms give 10,000; 300 ms and more give 4,300 and half of the sender's CPU.
TASK_LINGER_MS = 1000

# Spark's default number of rows in an Arrow batch, which a task writes at least, and a size of 100 bytes for each.
ARROW_BATCH_ROWS = 10_000
ARROW_BATCH_BYTES = 1_000_000

ASYNC_PROGRESS = "asyncprogresstrackingenabled"

# Spark adds these to a sink's options: DataStreamWriter.queryName, start(path), save(path), asynchronous progress.
SPARK_OWN = frozenset(
    {
        "path",
        "checkpointlocation",
        QUERY_NAME,
        ASYNC_PROGRESS,
        "asyncprogresstrackingcheckpointintervalms",
        "asyncprogresstrackingoverridesinksupportcheck",
    }
)


_DEFAULTS = ExactlyOnce()

_GUARANTEES = (
    "The [guarantee](guarantees.md) of each row. `at-least-once`: the row is in Kafka when its task ends. A task or micro-batch"
    " that runs again writes its rows again. `exactly-once`: consumers with isolation.level=read_committed see the row once,"
    " whatever fails and runs again. kafka.transaction.timeout.ms then defaults to 15 minutes. `none`: idempotence is off and"
    " kafka.acks is 1, unless you set them; kafka.acks=0 is allowed. Rows may be lost, duplicated or reordered. A task still"
    " waits for the brokers' answers, and a refused row still fails it."
)

# By lower-cased name. Any other option without the prefix `kafka.` is unknown.
SINK_OPTIONS: Mapping[str, SinkOption] = {
    option.name.lower(): option
    for option in (
        SinkOption(TOPIC, "a topic name", "", "The topic of all rows. It overrides the column `topic`."),
        SinkOption(
            GUARANTEE,
            ", ".join(f"`{each}`" for each in Guarantee),
            f"`{Guarantee.AT_LEAST_ONCE}`",
            _GUARANTEES,
            "Spark's sink has no such option. It is at-least-once, with acks and idempotence as set.",
        ),
        SinkOption(
            SINK_NAME,
            "1 to 40 letters, digits, `.`, `_`, `-`",
            "",
            "exactly-once: tells apart the sinks of one `foreachBatch` function. A `-` and the name are added to"
            f" `{TRANSACTIONAL_ID_PREFIX}` and to `{COMMIT_LOG_TOPIC}`. Do not change it for a query that has committed.",
        ),
        SinkOption(
            TRANSACTIONAL_ID_PREFIX,
            "letters, digits, `.`, `_`, `-`",
            f"`{_DEFAULTS.transactional_id_prefix}`",
            "exactly-once: the prefix of all transactional ids. The query's id follows. Grant ACLs on this prefix.",
        ),
        SinkOption(
            COMMIT_LOG_TOPIC,
            "a topic name",
            f"`{_DEFAULTS.commit_log.topic}`",
            "exactly-once: the compacted topic that records the commits of each query. It is created on first use, and queries"
            " share it. A query stops if its earlier records are missing, such as in another topic.",
        ),
        SinkOption(
            COMMIT_LOG_PARTITIONS,
            "a whole number",
            f"{_DEFAULTS.commit_log.partitions}",
            "exactly-once: the number of partitions of the commit log. Queries are spread over them. Do not change it for a log"
            " that is in use.",
        ),
        SinkOption(
            COMMIT_LOG_REPLICATION,
            "a whole number",
            "",
            "exactly-once: the replication factor that the commit log is created with. It defaults to 3, or to the number of"
            " brokers if that is smaller. With 3 or more, min.insync.replicas is 2.",
        ),
        SinkOption(
            COMMIT_LOG_START,
            "a batch id",
            "",
            "exactly-once: the batch that the commit log may begin with. Set it for a query that ran without exactly-once"
            " before, or that has lost its commit log. Without it, such a query stops.",
        ),
        SinkOption(
            CREATE_PARTITIONS,
            "a whole number",
            "",
            "Number of partitions that a missing topic is created with; defaults to the brokers' `num.partitions`. If one of the"
            " options `topic.create.*` is set, the driver creates the topics of the options `topic`, `dead.letter.topic` and"
            " `report.topic` before any task starts. See [topics](topics.md#let-the-sink-create-the-topic).",
            "Spark's sink creates no topics.",
        ),
        SinkOption(
            CREATE_REPLICATION,
            "a whole number",
            "",
            "Replication factor that a missing topic is created with; defaults to the brokers' `default.replication.factor`.",
        ),
        SinkOption(
            f"{CREATE_CONFIG}NAME",
            "a value of the topic config NAME",
            "",
            "Topic config that a missing topic is created with, such as `topic.create.config.retention.ms`.",
        ),
        SinkOption(
            "includeHeaders",
            "`true`",
            "`true`",
            "The column `headers` is written whenever it exists. To write no headers, drop the column.",
            "Spark's sink ignores this option and writes the column, too.",
        ),
        *(
            SinkOption(
                name,
                f"{OPTIONS[name].kind.wanted}".replace(f" to {INT64_MAX}", " up"),
                "",
                f"{doc} The limit holds for each Python worker. `Producer` has the same option.",
                OPTIONS[name].differs,
            )
            for name, doc in RATE_LIMITS.items()
        ),
        *RECORD_OPTIONS,
        *ERROR_OPTIONS,
        *REPORT_OPTIONS,
        *SCHEMA_SINK_OPTIONS,
    )
}

# Producer options that users of a sink cannot set.
SET_BY_THE_SINK: Mapping[str, str] = {
    "transactional.id": "tasks must not share one: use delivery.guarantee=exactly-once, which names a transaction for each task,"
    " and transactional.id.prefix to set the prefix of the names",
    **{
        name: f"write it without {KAFKA_PREFIX}, because it is an option of the sink: {name}"
        for name in (*RATE_LIMITS, "timestamp.unit")
    },
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """A sink's settings.

    producer: its producer's settings. topic: the topic of every row; None: the topic column has it. exactly_once: None under
    another guarantee. creation: how the driver creates a missing topic; None: it does not. record: the choice of columns, and
    the fixed headers. schemas: how schemas of keys and values are found; None: they have none, or the driver has found them and
    the producer's serializers have them. errors: what to do about bad rows. report_topic: the topic of reports; None: there is
    none. query_name: of the query, as its user gave it with queryName; "" without one.
    """

    producer: ProducerConfig
    topic: str | None = None
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    exactly_once: ExactlyOnce | None = None
    creation: TopicCreation | None = None
    record: RecordOptions = NAMED_COLUMNS
    schemas: SchemaSettings | None = None
    errors: ErrorOptions = FAIL
    report_topic: str | None = None
    query_name: str = ""

    @property
    def formats(self) -> frozenset[str]:
        """The parts of a record, key and value, that have a format whose schema is not known yet."""
        return frozenset() if self.schemas is None else self.schemas.parts


def sink_options(options: Mapping[str, object], *, warns_of_security: bool = True) -> SinkOptions:
    """Returns the settings from options in the form of Spark's own Kafka sink. Names match in any case.

    Other options that only Java's producer has are ignored, with one warning each.

    Args:
        options: values by name.
        warns_of_security: whether to log a warning for unsafe settings. `check` shows them in its report.

    Raises:
        OptionError: an option is unknown (the text suggests the nearest known one), a value has the wrong type or range, or a
            `kafka.*` option of Java's producer must not be ignored.
    """
    check_header_names(list(options))
    by_name = _lower_cased(options)
    kafka = {name.removeprefix(KAFKA_PREFIX): value for name, value in by_name.items() if name.startswith(KAFKA_PREFIX)}
    for name in by_name:
        if not name.startswith(KAFKA_PREFIX):
            _check_sink_option(name)
    refuse_unsupported(by_name)
    guarantee = guarantee_of(by_name)
    exactly_once = exactly_once_options(by_name, guarantee)
    if exactly_once is not None and str(by_name.get(ASYNC_PROGRESS, "false")).strip().lower() != "false":
        raise OptionError(
            "option asyncProgressTrackingEnabled: cannot be combined with delivery.guarantee=exactly-once, because Spark would"
            " start a batch before the previous one is committed; remove the option",
            option="asyncProgressTrackingEnabled",
        )
    include_headers = by_name.get(INCLUDE_HEADERS, True)
    if str(include_headers).strip().lower() != "true":
        raise OptionError(
            f"option includeHeaders: {include_headers!r} is not supported: the column headers is written whenever it exists;"
            " drop the column to write no headers",
            option="includeHeaders",
        )
    topic = by_name.get(TOPIC)
    topic = None if topic is None else topic_name(TOPIC, topic)
    creation = topic_creation(by_name, topic)
    record = record_options(by_name)
    commit_log = None if exactly_once is None else exactly_once.commit_log.topic
    errors = error_options(by_name, topic, commit_log)
    uses = {"the option topic": topic, "dead letters": errors.topic, "the commit log": commit_log}
    reports = report_topic(by_name, uses)
    schemas = schema_settings(by_name, kafka)
    own = {name: OPTIONS[name].parse(by_name[name]) for name in RATE_LIMITS if name in by_name}
    own["timestamp.unit"] = "ms"  # tasks convert the column, and check it
    producer = _producer_config(kafka, guarantee, own)
    if exactly_once is not None:
        warn_of_slow_transactions(producer)
    if warns_of_security:
        for text in security_warnings(producer.security):
            warn_once(text)
    name = str(by_name.get(QUERY_NAME, ""))
    return SinkOptions(producer, topic, guarantee, exactly_once, creation, record, schemas, errors, reports, name)


def _lower_cased(options: Mapping[str, object]) -> dict[str, object]:
    # Spark passes options with lower-cased names, and no Kafka option has an upper-case letter.
    by_name: dict[str, object] = {}
    for name, value in options.items():
        if name.lower() in by_name:
            raise OptionError(f"option {name}: is set twice, in different case", option=name)
        by_name[name.lower()] = value
    return by_name


def _check_sink_option(name: str) -> None:
    if name in SPARK_OWN or name in SINK_OPTIONS or name.startswith(HEADER_PREFIX):
        return
    if is_creation_option(name) or is_schema_option(name):
        return
    if name in OPTIONS or is_security_option(name) or name in HARMLESS or why_refused(name):
        raise OptionError(f"unknown option {name}; did you mean {KAFKA_PREFIX}{name}?", option=name)
    if name in OF_ONE_PART:
        raise OptionError(f"unknown option {name}: use value.{name}, or key.{name} for the schema of keys", option=name)
    known = [
        *SINK_OPTIONS,
        *schema_option_names(),
        *REGISTRY_OPTIONS,
        *(KAFKA_PREFIX + option for option in (*OPTIONS, *SECURITY_NAMES)),
    ]
    raise OptionError(f"unknown option {name}{_instead_of(name) or nearest(name, known)}", option=name)


def _instead_of(name: str) -> str:
    """Returns what to use in place of an option of librdkafka or Kafka Connect, or an empty string for another option."""
    return replacement(name, KAFKA_PREFIX) or connects_name(name)


def warn_of_slow_transactions(config: ProducerConfig) -> None:
    """Logs a warning if a rate limit lets less than a usual Arrow batch pass before a transaction times out."""
    timeout_s = config.transaction_timeout_ms / 1000
    for name, limit, unit, usual in (
        ("max.bytes.per.second", config.max_bytes_per_second, "bytes", ARROW_BATCH_BYTES),
        ("max.records.per.second", config.max_records_per_second, "records", ARROW_BATCH_ROWS),
    ):
        if limit is not None and limit * timeout_s < usual:
            warn_once(
                f"option {name}: {limit} lets a task write {limit * timeout_s:,.0f} {unit} before its transaction times out"
                f" (kafka.transaction.timeout.ms, {timeout_s:,.0f} s). A task with more fails: raise one of the two"
            )


def _producer_config(kafka: Mapping[str, object], guarantee: Guarantee, own: Mapping[str, object]) -> ProducerConfig:
    # If delivery.timeout.ms is not set either, it is raised to what both need.
    known: dict[str, object] = {} if kafka.keys() & {"linger.ms", "delivery.timeout.ms"} else {"linger.ms": TASK_LINGER_MS}
    known |= own
    for name, value in kafka.items():
        if name in SET_BY_THE_SINK:
            raise OptionError(f"option {KAFKA_PREFIX}{name}: {SET_BY_THE_SINK[name]}", option=KAFKA_PREFIX + name)
        if name in OPTIONS or is_security_option(name):
            known[name] = value
        else:
            _refuse_or_warn(name)
    names_idempotence = "enable.idempotence" in known
    try:
        config = producer_config(with_guarantee(known, guarantee))
    except OptionError as error:
        if guarantee is Guarantee.EXACTLY_ONCE and not names_idempotence:  # which is then what the user has set
            error = OptionError(error.message.replace("enable.idempotence=true", f"{GUARANTEE}={guarantee}"), **error.facts)
        raise with_prefix(error) from None
    if guarantee is Guarantee.AT_LEAST_ONCE and not config.enable_idempotence and not names_idempotence:
        in_flight = f"max.in.flight.requests.per.connection={config.max_in_flight}"
        culprit, so = (
            ("retries=0", "any passing error fails the task") if not config.retries else (in_flight, "rows may be reordered")
        )
        warn_once(f"option {KAFKA_PREFIX}{culprit}: it turns idempotence off, and {so}; remove the option")
    if "linger.ms" in known:
        return config
    return replace(config, linger_ms=min(TASK_LINGER_MS, config.delivery_timeout_ms - config.request_timeout_ms))


def with_prefix(error: OptionError) -> OptionError:
    """Returns the producer's error with the option's name as the sink's user wrote it, if it names an option."""
    option = error.facts.get("option")
    if option is None:
        return error
    text = error.message.replace(f"option {option}", f"option {KAFKA_PREFIX}{option}", 1)
    return OptionError(text, **{**error.facts, "option": KAFKA_PREFIX + option})


def _refuse_or_warn(name: str) -> None:
    """Warns of an option that only other producers have, or raises OptionError. A value is never shown: it may be a password."""
    option = KAFKA_PREFIX + name
    if reason := why_refused(name):
        raise OptionError(f"option {option}: {reason}", option=option)
    if name not in HARMLESS:
        known = (KAFKA_PREFIX + other for other in (*OPTIONS, *SECURITY_NAMES, *HARMLESS, *REFUSED))
        hint = _instead_of(name) or nearest(option, known)
        raise OptionError(f"unknown option {option}{hint}", option=option)
    warn_once(f"option {option} is ignored: {HARMLESS[name]}")


@cache
def warn_once(text: str) -> None:
    """Logs a warning once per process, because Spark creates a writer for each micro-batch, often in the same process."""
    logger.warning("%s", text)
