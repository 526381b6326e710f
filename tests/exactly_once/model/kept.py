"""Rules that are kept though nothing goes wrong without them, each with why; and what no history of the model comes to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_kafka_sink.exactly_once.resolving import Refusal
from spark_kafka_sink.exactly_once.rules import Reason
from tests.exactly_once.model import mutations
from tests.exactly_once.model.configuration import Configuration, Driver, spread, together
from tests.exactly_once.model.left_out import ABORT, DRIVERS, LONG_DRIVERS, ONE_BATCH, REPEATING, REPLAY
from tests.exactly_once.model.world import Budget

RETURNING: Final = Driver(ONE_BATCH, splits=(together, spread), runs=3)


@dataclass(frozen=True)
class Kept:
    """configurations: where the rule could matter, and nothing goes wrong without it."""

    why: str
    configurations: tuple[Configuration, ...]


KEPT_WITHOUT_COUNTER_EXAMPLE: Final[dict[str, Kept]] = {
    "end orphans when the batch is complete": Kept(
        "When every EndTxn has answered NONE nobody can prepare any more what was listed before; that `complete` is written first"
        " keeps an end that takes long, or fails, from the record.",
        (
            Configuration(DRIVERS, budget=Budget(lost=1, dead_attempts=1), slots=3),
            Configuration(LONG_DRIVERS),
            Configuration((RETURNING,), budget=Budget(crashes=1, timeouts=1, dead_attempts=1)),
        ),
    ),
    "own transactions that the record lists are not aborted": Kept(
        "Where a commit ends, those are committed, or aborted, and EndTxn(abort) is refused: it would only be a request for each."
        " If one were open all the same, the record would say what is not so.",
        (
            Configuration(DRIVERS, budget=Budget(lost=1, timeouts=1), commit=mutations.aborts_what_is_logged),
            Configuration(DRIVERS, version=1, budget=Budget(lost=1, timeouts=1), commit=mutations.aborts_what_is_logged),
            Configuration((RETURNING,), budget=Budget(crashes=1, forgotten=1), commit=mutations.aborts_what_is_logged),
            Configuration((REPEATING, REPLAY, ABORT), budget=Budget(timeouts=1), commit=mutations.aborts_what_is_logged),
        ),
    ),
}

# The model's rows all go to one topic, and its tasks know their partitions: the tests of rules.py and resolving.py have these.
NEVER_COME_TO: Final[dict[Reason | Refusal, str]] = {
    Reason.OTHER_TOPICS: "only another query, or sink, writes to other topics, and that is no part of the model",
    Refusal.COMMITTED: "nobody deletes the commit log, which would say it; without it, an abort still refuses",
    Refusal.PARTITION_UNKNOWN: "every task is told its own; a replay looks for the same reason whether they are told apart",
}
