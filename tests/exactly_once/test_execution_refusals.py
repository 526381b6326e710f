"""A query is refused where its prefix, the partition of its records or its checkpoint is not the one it had."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Producer

from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import CommitStoppedError, OptionError
from spark_kafka_sink.exactly_once.commit_log import CommitLog, partition_of
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State, encode_key
from spark_kafka_sink.exactly_once.committer import Committer
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from tests.exactly_once.opened import new_id, opened, soon
from tests.exactly_once.queries import PREFIX, Cut, Query
from tests.kafka.fixtures import NewTopic
from tests.kafka.kafka import Kafka

MATCH = "its checkpoint {} belonged to query {}, which has reached batch 1 .*start=0"


def place(query: Query) -> str:
    """Other tests share the log."""
    return f"/data/{query.topic}"


def begin(query: Query, *values: str, start: int | None = None, checkpoint: str | None = None) -> None:
    own = query.write(*values)
    query.committer().commit(MicroBatch(query.id, 0, place(query) if checkpoint is None else checkpoint), own, start)


def another(query: Query) -> Query:
    """What Spark makes of the same program without its checkpoint."""
    return replace(query, id=f"{query.id}-again")


def test_without_its_checkpoint_a_query_is_refused_before_any_row_is_visible(query: Query) -> None:
    begin(query, "a")
    query.run(1, "b")  # whoever writes the later records, the place stays known
    again = another(query)
    with pytest.raises(CommitStoppedError, match=MATCH.format(place(query), query.id)) as stopped:
        begin(again, "a")
    assert stopped.value.facts["reason"] == "CHECKPOINT_DELETED"
    assert again.open_ids() == []
    query.expect("a", "b")


def test_commit_log_start_lets_it_write_everything_again(query: Query) -> None:
    begin(query, "a")
    again = another(query)
    begin(again, "a", start=0)
    again.run(1, "b")
    query.expect("a", "a", "b")


@pytest.mark.parametrize("checkpoint", ["/data/other", ""])
def test_a_checkpoint_elsewhere_or_unknown_is_no_reason(query: Query, checkpoint: str) -> None:
    begin(query, "a")
    begin(another(query), "b", checkpoint=checkpoint)
    query.expect("a", "b")


def test_it_is_refused_whatever_topics_its_last_batch_was_for(query: Query, new_topic: NewTopic) -> None:
    begin(query, "a")
    query.commit(1, query.write("b", batch=1, topic=new_topic()))
    with pytest.raises(CommitStoppedError):
        begin(another(query), "a")
    query.expect("a")


def test_it_is_refused_also_when_somebody_has_ended_what_its_first_run_left_open(query: Query) -> None:
    begin(query, "a")
    again = another(query)
    closed = CommitRecord(again.id, 0, State.CLOSED, "r", 0)
    again.log().claim(TransactionalIds(PREFIX, again.id), soon()).write(closed, soon())
    with pytest.raises(CommitStoppedError, match="its checkpoint"):
        begin(again, "a")
    query.expect("a")


def test_what_was_closed_of_it_is_no_other_query(query: Query) -> None:
    closed = CommitRecord(query.id, 0, State.CLOSED, "r", 0, checkpoint=place(query))
    query.log().claim(TransactionalIds(PREFIX, query.id), soon()).write(closed, soon())
    begin(query, "a")
    query.expect("a")


def test_it_is_refused_beside_records_that_only_another_version_reads(query: Query, new_topic: NewTopic) -> None:
    own_log = replace(query, log_topic=new_topic(2, config={"cleanup.policy": "compact"}))
    newer = Producer({"bootstrap.servers": query.kafka.bootstrap_servers})
    for partition in range(2):
        newer.produce(own_log.log_topic, b'{"format": 2}', encode_key(f"newer-{partition}", 0), partition=partition)
    assert newer.flush(30) == 0
    begin(own_log, "a")
    with pytest.raises(CommitStoppedError, match="its checkpoint"):
        begin(another(own_log), "a")
    query.expect("a")


# A query whose records are in another partition, as commit.log.partitions was changed, is refused: nothing would be found.


@pytest.fixture
def moved(kafka: Kafka, query: Query) -> Query:
    """A query with a log of its own, of two partitions, that would be looked for in the first if it had one."""
    ids = (new_id("query") for _ in range(100))
    return replace(query, id=next(each for each in ids if partition_of(each, 2) == 1), log_topic=f"{query.topic}-log")


def of_one_partition(client: ClusterClient, log_topic: str) -> Committer:
    return Committer(CommitLog(client, CommitLogSettings(log_topic, 1)), TransactionClient(client), PREFIX, 30)


def test_its_first_batch_is_not_written_a_second_time(moved: Query, cut: Cut) -> None:
    with cut("end.after"):
        moved.run(0, "a")
    again = moved.write("a")
    with pytest.raises(OptionError, match=rf"commit\.log\.partitions: the commit log has batch 0 of {moved.id} in partition 1"):
        of_one_partition(moved.client, moved.log_topic).commit(MicroBatch(moved.id, 0), again)
    assert moved.open_ids() == []
    moved.run(0, "a")
    moved.expect("a")


def test_later_ones_stop_and_the_option_is_named(moved: Query) -> None:
    moved.run(0, "a")
    with pytest.raises(CommitStoppedError, match=r"set commit\.log\.topic, commit\.log\.partitions and"):
        of_one_partition(moved.client, moved.log_topic).commit(MicroBatch(moved.id, 1), moved.write("b", batch=1))
    moved.expect("a")


# A query keeps its prefix of transactional ids.


def test_a_query_whose_prefix_was_changed_is_refused_as_nobody_would_fence_its_old_driver(query: Query) -> None:
    query.run(0, "a")
    ids = TransactionalIds("other-prefix", query.id)
    own = (PreparedTransaction(opened(query.client, query.topic, "b", ids.for_slot("cafe", 0)), 0, 0),)
    transactions = TransactionClient(query.client)
    with pytest.raises(
        OptionError, match=f"option transactional.id.prefix: .* with the prefix {PREFIX}; set the option to that prefix"
    ):
        Committer(query.log(), transactions, ids.prefix, 30).commit(MicroBatch(query.id, 1), own)
    assert transactions.open_handles(ids, soon()) == ()
    query.run(1, "c")
    query.expect("a", "c")
