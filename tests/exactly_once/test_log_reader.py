"""How the commit log asks a leader that has not all to tell yet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import DeadlineError
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_log_settings import CommitLogSettings
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.wire_types import ZERO_UUID
from tests.exactly_once.opened import client_of, new_id, soon


def query() -> TransactionalIds:
    return TransactionalIds(new_id("prefix"), new_id("query"))


def a_record(ids: TransactionalIds) -> CommitRecord:
    return CommitRecord(ids.query_id, 1, State.COMPLETE, new_id("record"), 0)


def test_a_leader_that_does_not_show_yet_what_it_has_is_asked_at_intervals() -> None:
    """A new leader learns the high watermark from its followers' next requests."""
    with EmbeddedBroker() as broker, client_of(broker.bootstrap_servers) as client:
        settings = CommitLogSettings(new_id("commits"), partitions=1)
        log, mine, other = CommitLog(client, settings), query(), query()
        claim = log.claim(mine, soon())
        CommitLog(client, settings).claim(other, soon()).write(a_record(other), soon())  # so that there is something between
        before = broker.faults.seen(ApiKey.FETCH)
        with (
            broker.faults.alter(ApiKey.FETCH, _shows_nothing, times=None),
            pytest.raises(DeadlineError),
        ):
            claim.write(a_record(mine), soon(1.0))
        assert 1 < broker.faults.seen(ApiKey.FETCH) - before < 40


def _shows_nothing(asked: Any, answer: Any) -> Any:
    (topic,) = answer.responses
    empty = [replace(partition, records=None) for partition in topic.partitions]
    return replace(answer, responses=[replace(topic, partitions=empty)])


def test_brokers_whose_topics_have_no_ids_are_read_by_name() -> None:
    """With inter.broker.protocol.version below 2.8 brokers offer Fetch v13, which has ids only, and tell zero for each id."""
    with EmbeddedBroker() as broker, client_of(broker.bootstrap_servers) as client:
        settings = CommitLogSettings(new_id("commits"), partitions=1)
        with broker.faults.alter(ApiKey.METADATA, _without_ids, times=None):
            ids, other = query(), query()
            for batch in range(2):
                claim = CommitLog(client, settings).claim(ids, soon(5))
                assert (None if claim.last is None else claim.last.batch) == (None if batch == 0 else batch - 1)
                # So that what is between the end that was read and the record is looked at as well.
                CommitLog(client, settings).claim(other, soon(5)).write(a_record(other), soon(5))
                claim.write(replace(a_record(ids), batch=batch), soon(5))


def _without_ids(asked: Any, answer: Any) -> Any:
    return replace(answer, topics=[replace(topic, topic_id=ZERO_UUID) for topic in answer.topics])
