"""What errors of a commit tell people to do."""

from __future__ import annotations

import pytest

from spark_kafka_sink.exactly_once.commit_errors import batch_aborted, commit_stopped
from spark_kafka_sink.exactly_once.rules import Reason, View
from spark_kafka_sink.exactly_once.share import Batch
from spark_kafka_sink.producer.transactions.handle import TransactionHandle

BATCH = Batch("q", 7)


@pytest.mark.parametrize(
    ("reason", "to_do"),
    [
        (Reason.GAP, "call the sink of a foreachBatch for each batch, also for one without rows"),
        (Reason.OTHER_ROWS, "if the query was changed, let it finish this batch as it was"),
        (
            Reason.OTHER_ROWS,
            "end the batch with `spark-kafka-sink transactions recover --query q`, and go on from a new checkpoint",
        ),
        (Reason.CLOSED, "start the query again"),
    ],
)
def test_what_may_be_the_user_s_own_doing_is_named(reason: Reason, to_do: str) -> None:
    assert to_do in str(commit_stopped(BATCH, View(7, ()), reason, ""))


def test_a_clock_that_is_ahead_makes_transactions_look_old() -> None:
    said = str(batch_aborted(BATCH, (), [TransactionHandle("id", 1, 0, 5, 3)]))
    assert "by this machine's clock, which must not be ahead of the brokers'" in said
