"""A query that begins where another one had its checkpoint is refused: it would write all of that one's rows again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_kafka_sink.errors import CommitStoppedError
from spark_kafka_sink.exactly_once.share import Batch
from tests.exactly_once.queries import Query

PLACE = "/data/checkpoint"
MATCH = f"its checkpoint {PLACE} was that of query {{}}, which has reached batch 1 .*start=0"


def begin(query: Query, *values: str, start: int | None = None, checkpoint: str = PLACE, topic: str | None = None) -> None:
    own = query.write(*values, topic=topic)
    query.committer().commit(Batch(query.id, 0, checkpoint), own, start)


def another(query: Query) -> Query:
    """What Spark makes of the same program without its checkpoint."""
    return replace(query, id=f"{query.id}-again")


def test_without_its_checkpoint_a_query_is_refused_before_any_row_is_visible(query: Query) -> None:
    begin(query, "a")
    query.run(1, "b")  # whoever writes the later records, the place stays known
    again = another(query)
    with pytest.raises(CommitStoppedError, match=MATCH.format(query.id)) as stopped:
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


def test_queries_of_other_topics_are_others_wherever_their_machines_have_their_checkpoints(query: Query) -> None:
    begin(query, "a")
    other_topic = f"{query.topic}-other"
    query.kafka.create_topic(other_topic, 1)
    begin(another(query), "b", topic=other_topic)
    query.expect("a")
    assert query.visible(other_topic) == ["b"]


def test_its_own_first_batch_may_be_committed_again(query: Query) -> None:
    begin(query, "a")
    begin(query, "a")
    query.expect("a")
