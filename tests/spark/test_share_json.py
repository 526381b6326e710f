from __future__ import annotations

import pytest

from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TaskTransaction
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.spark.share_json import share_from_json, share_to_json

BATCH = MicroBatch("query", 3)
HANDLE = TransactionHandle("prefix.query.ab.0", 2**40, 7, 2, 12, (("töpic", "0-3,5"), ("other", "1")))


@pytest.mark.parametrize("transaction", [PreparedTransaction(HANDLE, 2, 2**32 - 1), None])
def test_a_share_comes_back_as_it_was(transaction: PreparedTransaction | None) -> None:
    share = TaskTransaction(BATCH, transaction)
    assert share_from_json(share_to_json(share), BATCH) == share


@pytest.mark.parametrize("text", ["", "[[]]", "{}x", '[["id", "x", 0, 5, 1, [], 0, 0]]'])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        share_from_json(text, BATCH)
