"""A query whose records are in another partition, as commit.log.partitions was changed, is refused: nothing would be found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import CommitStoppedError, OptionError
from spark_kafka_sink.exactly_once.commit_log import CommitLog, partition_of
from spark_kafka_sink.exactly_once.commit_log_settings import CommitLogSettings
from spark_kafka_sink.exactly_once.committer import Committer
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from tests.exactly_once.opened import new_id
from tests.exactly_once.queries import PREFIX, CutError, Query
from tests.kafka.kafka import Kafka


@pytest.fixture
def moved(kafka: Kafka, query: Query) -> Query:
    """A query with a log of its own, of two partitions, that would be looked for in the first if it had one."""
    ids = (new_id("query") for _ in range(100))
    return replace(query, id=next(each for each in ids if partition_of(each, 2) == 1), log_topic=f"{query.topic}-log")


def of_one_partition(client: ClusterClient, log_topic: str) -> Committer:
    return Committer(CommitLog(client, CommitLogSettings(log_topic, 1)), TransactionClient(client), PREFIX, 30)


def test_its_first_batch_is_not_written_a_second_time(moved: Query, cut: Callable[[str | None], None]) -> None:
    cut("end.after")
    with pytest.raises(CutError):
        moved.run(0, "a")
    cut(None)
    again = moved.write("a")
    with pytest.raises(OptionError, match=rf"commit\.log\.partitions: the commit log has batch 0 of {moved.id} in partition 1"):
        of_one_partition(moved.client, moved.log_topic).commit(MicroBatch(moved.id, 0), again)
    assert moved.open_ids() == []
    moved.run(0, "a")
    moved.expect("a")


def test_nor_one_that_the_log_may_begin_with(moved: Query) -> None:
    moved.run(0, "a")
    moved.run(1, "b")
    with pytest.raises(OptionError, match="in partition 1"):
        of_one_partition(moved.client, moved.log_topic).commit(MicroBatch(moved.id, 1), moved.write("b", batch=1), start=1)
    moved.expect("a", "b")


def test_later_ones_stop_and_the_option_is_named(moved: Query) -> None:
    moved.run(0, "a")
    with pytest.raises(CommitStoppedError, match=r"set commit\.log\.topic, commit\.log\.partitions and"):
        of_one_partition(moved.client, moved.log_topic).commit(MicroBatch(moved.id, 1), moved.write("b", batch=1))
    moved.expect("a")
