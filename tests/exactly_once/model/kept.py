"""A rule that is kept though nothing goes wrong without it, and why; and what no history of the model comes to."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.exactly_once.commit_rules import Reason
from spark_kafka_sink.exactly_once.recovery_rules import Refusal

KEPT_WITHOUT_COUNTER_EXAMPLE: Final = {
    "end orphans when the batch is complete": (
        "When every EndTxn has answered NONE nobody can prepare any more what was listed before; that `complete` is written first"
        " keeps an end that takes long, or fails, from the record."
    ),
}

# The model's rows all go to one topic, and its tasks know their partitions. Tests of both modules of rules have these.
NEVER_COME_TO: Final[dict[Reason | Refusal, str]] = {
    Reason.OTHER_TOPICS: "only another query, or sink, writes to other topics, and that is no part of the model",
    Refusal.COMMITTED: "nobody deletes the commit log, which would say it; without it, an abort still refuses",
    Refusal.PARTITION_UNKNOWN: "every task is told its own; a replay looks for the same reason whether they are told apart",
}
