"""A stream that 0.1 has left in the middle of a commit goes on, and leaves nothing behind that 0.1 cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from tests.exactly_once.kept_logs import KEPT, log_as
from tests.exactly_once.opened import client_of, committed, opened, soon
from tests.kafka.kafka import Kafka
from tests.spark.frames import run
from tests.spark.test_exactly_once import Target, sink, stream, target

pytestmark = pytest.mark.spark
__all__ = ["target"]

CHECKPOINT = json.loads((Path(__file__).parent / "kept" / "checkpoint-0.1.json").read_text(encoding="utf-8"))
"""As 0.1's driver left it when it was killed while it committed batch 1, whose rows come from the file 01.json."""
LOG = CommitLogSettings()


def test_a_batch_that_0_1_was_committing_is_there_once_and_the_stream_goes_on(
    spark: SparkSession, kafka: Kafka, target: Target, tmp_path: Path
) -> None:
    df = stream(spark, tmp_path, range(2), range(2, 4), range(4, 6))
    for name, text in CHECKPOINT.items():
        path = tmp_path / "checkpoint" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{folder}", str(tmp_path)), encoding="utf-8")
    ids = TransactionalIds(target.topic, json.loads(CHECKPOINT["metadata"])["id"], "d1")
    with client_of(kafka) as client:
        handles = [opened(client, target.topic, str(row), ids.for_slot("0aff", row)) for row in range(4)]
        own = [PreparedTransaction(handle, task, 77) for task, handle in enumerate(handles[2:])]
        ended = TransactionClient(client).end(handles[:2], True, soon())  # batch 0
        assert {each.error for each in ended.values()} == {""}
        log_as("0.1", client, LOG, ids, 1, "prepared", own)

    run(sink(df, target), tmp_path)

    target.expect(range(6))
    values = [
        json.loads(value) for key, value in committed(kafka, LOG) if key is not None and ids.query_id in key.decode() and value
    ]
    newest = json.loads(KEPT["commit log"]["prepared"])
    assert values[-1]["batch"] == 2
    assert all(value["format"] <= newest["format"] and value.keys() <= newest.keys() for value in values)
