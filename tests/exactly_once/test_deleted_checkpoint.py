"""A query that begins where another one had its checkpoint is refused: it would write all of that one's rows again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Producer

from spark_kafka_sink.errors import CommitStoppedError
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State, encode_key
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from tests.exactly_once.opened import soon
from tests.exactly_once.queries import PREFIX, Query
from tests.kafka.fixtures import NewTopic

MATCH = "its checkpoint {} was that of query {}, which has reached batch 1 .*start=0"


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


def test_a_commit_log_start_for_another_batch_changes_nothing(query: Query) -> None:
    begin(query, "a")
    with pytest.raises(CommitStoppedError):
        begin(another(query), "a", start=7)
    query.expect("a")


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


def test_its_own_first_batch_may_be_committed_again(query: Query) -> None:
    begin(query, "a")
    begin(query, "a")
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
