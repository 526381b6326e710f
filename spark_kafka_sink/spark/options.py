"""What a user writes as options, checked in the driver before any task starts."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace

from spark_kafka_sink.config import OPTIONS, ProducerConfig, producer_config
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.option import nearest
from spark_kafka_sink.producer.column_checks import topic_problem
from spark_kafka_sink.producer.interceptors import ProducerInterceptors
from spark_kafka_sink.producer.partitioners.partitioner_class import partitioner_of
from spark_kafka_sink.spark.guarantee import ExactlyOnce, Guarantee, exactly_once_options, guarantee_of, with_guarantee
from spark_kafka_sink.spark.java_options import HARMLESS, ONLY_PLAINTEXT, REFUSED, SET_BY_THE_SINK, why_refused
from spark_kafka_sink.spark.serialized_columns import looked_at
from spark_kafka_sink.spark.sink_option import INCLUDE_HEADERS, SINK_OPTIONS, TOPIC

logger = logging.getLogger(__name__)

KAFKA_PREFIX = "kafka."


# A task ends with a flush, so this delays nothing that anybody waits for. With 5 ms an append over 1,000 partitions outlasts it:
# 17,000 to 58,000 batches a million rows; with 100 ms 10,000, with 300 ms and more 4,300, and half of the sender's CPU.
TASK_LINGER_MS = 1000

ASYNC_PROGRESS = "asyncprogresstrackingenabled"

# Spark puts these among a sink's options itself: DataStreamWriter.queryName, start(path), save(path), asynchronous progress.
SPARK_OWN = frozenset(
    {
        "path",
        "checkpointlocation",
        "queryname",
        ASYNC_PROGRESS,
        "asyncprogresstrackingcheckpointintervalms",
        "asyncprogresstrackingoverridesinksupportcheck",
    }
)

_warned: set[str] = set()


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """A sink's settings: those of its producer, the topic of every row (None: the topic column has it), what is promised, and
    how it is kept where that is exactly-once."""

    producer: ProducerConfig
    topic: str | None = None
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    exactly_once: ExactlyOnce | None = None


def sink_options(options: Mapping[str, object]) -> SinkOptions:
    """Settings from options as Spark's own Kafka sink takes them, keys in any case.

    Raises `OptionError` for an unknown option (with the nearest known one), a value of the wrong type or range, and a
    `kafka.*` option of Java's producer that must not be ignored here. Other options that only Java's producer knows are
    ignored with one logged warning each.
    """
    by_name = _lower_cased(options)
    kafka = {name.removeprefix(KAFKA_PREFIX): value for name, value in by_name.items() if name.startswith(KAFKA_PREFIX)}
    for name in by_name:
        if not name.startswith(KAFKA_PREFIX):
            _check_sink_option(name)
    guarantee = guarantee_of(by_name)
    exactly_once = exactly_once_options(by_name, guarantee)
    if exactly_once is not None:
        _check_progress_tracking(by_name)
    _check_include_headers(by_name.get(INCLUDE_HEADERS, True))
    return SinkOptions(_producer_config(kafka, guarantee), _topic(by_name.get(TOPIC)), guarantee, exactly_once)


def _lower_cased(options: Mapping[str, object]) -> dict[str, object]:
    # Spark hands options over with lower-cased keys, and no name of Kafka's has an upper-case letter.
    by_name: dict[str, object] = {}
    for name, value in options.items():
        if name.lower() in by_name:
            raise OptionError(f"option {name}: given twice, in different case", option=name)
        by_name[name.lower()] = value
    return by_name


def _check_sink_option(name: str) -> None:
    if name in SPARK_OWN or name in SINK_OPTIONS:
        return
    if name in OPTIONS or name in HARMLESS or why_refused(name):
        raise OptionError(f"unknown option {name}; did you mean {KAFKA_PREFIX}{name}?", option=name)
    known = [*SINK_OPTIONS, *(KAFKA_PREFIX + option for option in OPTIONS)]
    raise OptionError(f"unknown option {name}{nearest(name, known)}", option=name)


def _check_progress_tracking(by_name: Mapping[str, object]) -> None:
    if str(by_name.get(ASYNC_PROGRESS, "false")).strip().lower() != "false":
        raise OptionError(
            "option asyncProgressTrackingEnabled: does not go with delivery.guarantee=exactly-once: Spark would begin a batch"
            " before it knows that the one before is committed; leave it out",
            option="asyncProgressTrackingEnabled",
        )


def _check_include_headers(value: object) -> None:
    if str(value).strip().lower() != "true":
        raise OptionError(
            f"option includeHeaders: {value!r} is not available: the column headers is written whenever it is there;"
            " drop the column to write none",
            option="includeHeaders",
        )


def _topic(value: object) -> str | None:
    if value is None:
        return None
    if (problem := topic_problem(value)) is not None:
        raise OptionError(f"option {TOPIC}: {problem}", option=TOPIC)
    return str(value)


def _producer_config(kafka: Mapping[str, object], guarantee: Guarantee) -> ProducerConfig:
    # Where delivery.timeout.ms is not given either it is raised to what both need.
    known: dict[str, object] = {} if kafka.keys() & {"linger.ms", "delivery.timeout.ms"} else {"linger.ms": TASK_LINGER_MS}
    for name, value in kafka.items():
        if name in SET_BY_THE_SINK:
            raise OptionError(f"option {KAFKA_PREFIX}{name}: {SET_BY_THE_SINK[name]}", option=KAFKA_PREFIX + name)
        if name in OPTIONS:
            known[name] = value
        else:
            _refuse_or_warn(name, value)
    try:
        config = producer_config(with_guarantee(known, guarantee))
        _check_plugins(config)
    except OptionError as error:
        option = error.facts["option"]
        text = error.message.replace(f"option {option}", f"option {KAFKA_PREFIX}{option}", 1)
        raise OptionError(text, option=KAFKA_PREFIX + option) from None
    if "linger.ms" in known:
        return config
    return replace(config, linger_ms=min(TASK_LINGER_MS, config.delivery_timeout_ms - config.request_timeout_ms))


def _check_plugins(config: ProducerConfig) -> None:
    """Now, and not in each task."""
    for option, value in config.settings().items():
        for one in value if isinstance(value, tuple) else (value,):
            _check_hashable(option, one)
    with looked_at(config):  # serializers that cannot be had raise
        pass
    if isinstance(config.partitioner_class, str | type):  # an object is not this process's to configure and close
        partitioner_of(config).close()
    named = tuple(value for value in config.interceptor_classes if isinstance(value, str | type))
    ProducerInterceptors.of(replace(config, interceptor_classes=named)).close()


def _check_hashable(option: str, value: object) -> None:
    try:
        hash(value)
    except TypeError:
        text = f"option {option}: a {type(value).__name__} without __hash__: tasks find their producer by its settings"
        raise OptionError(text, option=option) from None


def _refuse_or_warn(name: str, value: object) -> None:
    """For a name that only Java's producer, or nobody, knows. A value never gets into a text: it may be a password."""
    option = KAFKA_PREFIX + name
    if name == "security.protocol":
        if str(value).strip().upper() != "PLAINTEXT":
            raise OptionError(f"option {option}: {ONLY_PLAINTEXT}", option=option)
    elif reason := why_refused(name):
        raise OptionError(f"option {option}: {reason}", option=option)
    elif name in HARMLESS:
        _warn_once(f"option {option} is ignored: {HARMLESS[name]}")
    else:
        known = (KAFKA_PREFIX + other for other in (*OPTIONS, *HARMLESS, *REFUSED, "security.protocol"))
        raise OptionError(f"unknown option {option}{nearest(option, known)}", option=option)


def _warn_once(text: str) -> None:
    # The writer is built anew for each micro-batch, often in the same process.
    if text not in _warned:
        _warned.add(text)
        logger.warning("%s", text)
