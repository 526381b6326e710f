"""The option `delivery.guarantee`, the options of exactly-once, and the producer settings that each guarantee needs."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import INT64_MAX, Kind, integer, one_of, topic_name

DEFAULT_TOPIC: Final = "__spark_kafka_sink_commits"


@dataclass(frozen=True, slots=True)
class CommitLogSettings:
    """Name and creation settings of the topic.

    Attributes:
        topic: Any valid topic name.
        partitions: Partition count of a new topic, and the number of partitions that queries are distributed over. Never change
            it for a log in use. Adding partitions to the topic has no effect.
        replication_factor: Replication factor of a new topic; None for 3, or the number of brokers if that is lower.
        transaction_timeout_ms: How long a driver that died can block readers of the log, in ms.
    """

    topic: str = DEFAULT_TOPIC
    partitions: int = 8
    replication_factor: int | None = None
    transaction_timeout_ms: int = 30_000


GUARANTEE = "delivery.guarantee"
TRANSACTIONAL_ID_PREFIX = "transactional.id.prefix"
SINK_NAME = "sink.name"
COMMIT_LOG_TOPIC = "commit.log.topic"
COMMIT_LOG_PARTITIONS = "commit.log.partitions"
COMMIT_LOG_REPLICATION = "commit.log.replication.factor"
COMMIT_LOG_START = "commit.log.start"
CHECKPOINT_LOCATION = "checkpointlocation"  # set by DataStreamWriter; Spark passes it on in lower case
QUERY_NAME = "queryname"  # as well

# The default of a broker's transaction.max.timeout.ms. A micro-batch must be written and committed within this time. A driver
# that is down for longer loses its prepared transactions.
TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000

WITHOUT_TRANSACTIONS = (
    f"If this cluster does not serve transactions to this client, set {GUARANTEE}=at-least-once: no row is lost, and a task or"
    " micro-batch that runs again writes its rows again"
)


class Guarantee(StrEnum):
    """Delivery guarantee of each row.

    none: rows may be lost or duplicated. at-least-once: no row is lost. exactly-once: readers with isolation.level=read_committed
    see each row once.
    """

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


_COMMIT_LOG = CommitLogSettings()


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    """Names of transactions, and the topic that records their commits.

    start: the batch that the log may begin with although the query has committed earlier ones; None: it must begin with batch 0.
    checkpoint: the value of checkpointLocation; "" for a job, or if Spark's settings name the folder.
    """

    transactional_id_prefix: str = "spark-kafka-sink"
    commit_log: CommitLogSettings = _COMMIT_LOG
    start: int | None = None
    checkpoint: str = ""

    @property
    def sink(self) -> str:
        """Names the sink within a query: two sinks of one foreachBatch function have neither name in common."""
        return f"{self.commit_log.topic}/{self.transactional_id_prefix}"


def _name(value: object, longest: int) -> str:
    text = str(value)
    if not text or len(text) > longest or any(not (each.isascii() and (each.isalnum() or each in "._-")) for each in text):
        raise ValueError
    return text


_GUARANTEES = one_of(**{each.value: each for each in Guarantee})

_KINDS: Mapping[str, Kind] = {
    TRANSACTIONAL_ID_PREFIX: Kind("1 to 200 letters, digits, '.', '_' and '-'", partial(_name, longest=200)),
    SINK_NAME: Kind("1 to 40 letters, digits, '.', '_' and '-'", partial(_name, longest=40)),
    COMMIT_LOG_TOPIC: Kind("a valid topic name", partial(topic_name, COMMIT_LOG_TOPIC)),
    COMMIT_LOG_PARTITIONS: integer(1),
    COMMIT_LOG_REPLICATION: integer(1, 32767),
    COMMIT_LOG_START: integer(0, INT64_MAX),
}


def guarantee_of(options: Mapping[str, object]) -> Guarantee:
    """Returns the guarantee that the options name. Raises `OptionError` for any other value."""
    found: Guarantee = _GUARANTEES.parse(GUARANTEE, options.get(GUARANTEE, Guarantee.AT_LEAST_ONCE))
    return found


def exactly_once_options(options: Mapping[str, object], guarantee: Guarantee) -> ExactlyOnce | None:
    """Returns the options of exactly-once, or None under another guarantee.

    Raises `OptionError` for a value that is not valid, and for an option that the guarantee does not use. options: by lower-cased
    name.
    """
    given = {name: kind.parse(name, options[name]) for name, kind in _KINDS.items() if name in options}
    if guarantee is not Guarantee.EXACTLY_ONCE:
        for name in given:
            raise OptionError(f"option {name}: requires {GUARANTEE}={Guarantee.EXACTLY_ONCE}", option=name)
        return None
    default = ExactlyOnce()
    end = f"-{given[SINK_NAME]}" if SINK_NAME in given else ""
    log = CommitLogSettings(
        topic=topic_name(COMMIT_LOG_TOPIC, given.get(COMMIT_LOG_TOPIC, default.commit_log.topic) + end),
        partitions=given.get(COMMIT_LOG_PARTITIONS, default.commit_log.partitions),
        replication_factor=given.get(COMMIT_LOG_REPLICATION),
    )
    prefix = given.get(TRANSACTIONAL_ID_PREFIX, default.transactional_id_prefix) + end
    return ExactlyOnce(prefix, log, given.get(COMMIT_LOG_START), checkpoint_of(options))


def checkpoint_of(options: Mapping[str, object]) -> str:
    """Returns the value of checkpointLocation; "" if there is none. options: by lower-cased name.

    It is equal text for equal places, without passwords: Spark treats file:/a, file:///a/ and /a as one place.
    """
    # abfss://container@account has no password there. A secret in s3a://key:secret@bucket may have slashes. A port is no secret.
    value = re.sub("^file:/+", "/", str(options.get(CHECKPOINT_LOCATION, "")).strip()).rstrip("/")
    return re.sub(r"(?<=^s3[an]:)//[^@:]*:[^@]*@|//[^/@:]*:(?!\d+/)[^@]*@", "//", value)


def query_of(checkpoint: str) -> str | None:
    """Returns the id in Spark's file `metadata` of a checkpoint (StreamMetadata); None if it cannot be read."""
    if not checkpoint:
        return None
    try:
        found = json.loads((Path(checkpoint) / "metadata").read_text(encoding="utf-8"))["id"]
        return str(uuid.UUID(found))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


# Producer settings of each guarantee, where the user sets none. Java's defaults are right for at-least-once.
_DEFAULTS: Mapping[Guarantee, Mapping[str, object]] = {
    Guarantee.NONE: {"acks": "1", "enable.idempotence": "false"},
    Guarantee.AT_LEAST_ONCE: {},
    # With an explicit true, settings that rule idempotence out are refused; by default they turn it off.
    Guarantee.EXACTLY_ONCE: {"transaction.timeout.ms": TRANSACTION_TIMEOUT_MS, "enable.idempotence": "true"},
}

# Refused: guarantee, option, its values as the user writes them, why.
_CANNOT_BE_KEPT = "a broker that fails would lose rows that were acknowledged: use kafka.acks=all, or delivery.guarantee=none"
_REFUSED: tuple[tuple[Guarantee, str, frozenset[str], str], ...] = (
    (Guarantee.AT_LEAST_ONCE, "acks", frozenset({"0", "1"}), _CANNOT_BE_KEPT),
    (Guarantee.EXACTLY_ONCE, "acks", frozenset({"0", "1"}), "transactions need kafka.acks=all"),
    (Guarantee.EXACTLY_ONCE, "enable.idempotence", frozenset({"false"}), "transactions need kafka.enable.idempotence=true"),
)


def with_guarantee(kafka: Mapping[str, object], guarantee: Guarantee) -> dict[str, object]:
    """Adds the guarantee's settings to the producer's options (without `kafka.`). Raises `OptionError` if they contradict it."""
    for of, name, values, why in _REFUSED:
        if of is guarantee and str(kafka.get(name, "")).strip().lower() in values:
            raise OptionError(f"option {name}: {kafka[name]} cannot be combined with {GUARANTEE}={guarantee}: {why}", option=name)
    defaults = dict(_DEFAULTS[guarantee])
    if str(kafka.get("enable.idempotence", "")).strip().lower() == "true":
        defaults.pop("acks", None)  # idempotence sets acks=all
    return {**defaults, **kafka}
