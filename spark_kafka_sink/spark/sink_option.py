"""The sink's own options in words; docs/options.md is made from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from spark_kafka_sink.spark.guarantee import (
    COMMIT_LOG_PARTITIONS,
    COMMIT_LOG_REPLICATION,
    COMMIT_LOG_START,
    COMMIT_LOG_TOPIC,
    GUARANTEE,
    TRANSACTIONAL_ID_PREFIX,
    ExactlyOnce,
    Guarantee,
)

TOPIC = "topic"
INCLUDE_HEADERS = "includeheaders"  # Spark's own Kafka connector has it


class SinkOption(NamedTuple):
    """An option of the sink itself, in words. differs: what Spark's own Kafka sink does differently."""

    name: str
    takes: str
    default: str
    doc: str
    differs: str = ""


_DEFAULTS = ExactlyOnce()

_GUARANTEES = (
    "What is promised of each row. `at-least-once`: it is in Kafka; a task or a micro-batch that is run again writes its rows"
    " again. `exactly-once`: a consumer with isolation.level=read_committed sees it once, whatever dies and is run again; each"
    " task writes in a transaction (kafka.transaction.timeout.ms is then 15 minutes where it is not set), and all are committed"
    " when all tasks are done. `none`: it was sent, without idempotence and with kafka.acks=1 where those are not set; 0 is"
    " allowed. A task still ends with a flush, which waits for the answers that there are, and a refused row still fails it, but"
    " rows that a broker took may be lost with it, and rows that are sent again may be there twice or in another order."
)

# By lower-cased name; any other option without the prefix `kafka.` is unknown.
SINK_OPTIONS: Mapping[str, SinkOption] = {
    option.name.lower(): option
    for option in (
        SinkOption(TOPIC, "a topic's name", "", "The topic of all rows; wins over the column topic."),
        SinkOption(
            GUARANTEE,
            ", ".join(f"`{each}`" for each in Guarantee),
            f"`{Guarantee.AT_LEAST_ONCE}`",
            _GUARANTEES,
            "Spark's sink has no such option; it promises at-least-once, with acks and idempotence as they are set.",
        ),
        SinkOption(
            TRANSACTIONAL_ID_PREFIX,
            "letters, digits, `.`, `_`, `-`",
            f"`{_DEFAULTS.transactional_id_prefix}`",
            "exactly-once: what all transactional ids begin with, before the query's id; ACLs are granted on it.",
        ),
        SinkOption(
            COMMIT_LOG_TOPIC,
            "a topic's name",
            f"`{_DEFAULTS.commit_log.topic}`",
            "exactly-once: the compacted topic that says how far each query's commits are. It is created on first use; queries"
            " share it. A query must find its records again: another topic, or none, stops it.",
        ),
        SinkOption(
            COMMIT_LOG_PARTITIONS,
            "a whole number",
            f"{_DEFAULTS.commit_log.partitions}",
            "exactly-once: partitions of the commit log that queries are spread over, and that it is created with. Never"
            " change it for a log in use.",
        ),
        SinkOption(
            COMMIT_LOG_REPLICATION,
            "a whole number",
            "",
            "exactly-once: replication factor that the commit log is created with; where it is not set 3, or as many as there are"
            " brokers. With 3 and more, min.insync.replicas is 2.",
        ),
        SinkOption(
            COMMIT_LOG_START,
            "a batch id",
            "",
            "exactly-once: the batch at which the commit log may begin, for a query that has run without exactly-once before,"
            " or that has lost its commit log; without it such a query stops.",
        ),
        SinkOption(
            "includeHeaders",
            "`true`",
            "`true`",
            "The column headers is written whenever it is there; to write none, drop it.",
            "Spark's sink ignores it, and writes the column too.",
        ),
    )
}
