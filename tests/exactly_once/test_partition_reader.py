"""What is read of the commit log: all that is committed, also of leaders and brokers that tell less than others."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import DeadlineError
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds
from spark_kafka_sink.exactly_once.partition_reader import committed_records
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.apis.fetch import AbortedTransaction, PartitionData
from spark_kafka_sink.protocol.fields import ZERO_UUID
from spark_kafka_sink.records.small_batches import NewRecord, small_batch
from tests.exactly_once.opened import client_of, new_id, query, soon
from tests.kafka.embedded import EmbeddedKafka


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
            claim.write(a_record(mine), soon(2.5))
        assert 1 < broker.faults.seen(ApiKey.FETCH) - before < 100


def test_a_topic_that_is_made_again_before_the_first_record_is_not_asked_for_under_its_old_id() -> None:
    with EmbeddedKafka(in_memory=True) as kafka, client_of(kafka) as client:
        settings = CommitLogSettings(new_id("commits"), partitions=1)
        log, mine, other = CommitLog(client, settings), query(), query()
        claim = log.claim(mine, soon())
        kafka.delete_topic(settings.topic)
        kafka.create_topic(settings.topic, 1, 1, {"cleanup.policy": "compact"})
        with client_of(kafka) as another:
            CommitLog(another, settings).claim(other, soon()).write(a_record(other), soon())
        with pytest.raises(ClaimLostError, match="was made again"):
            claim.write(a_record(mine), soon(10))


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


# What of a Fetch's answer counts as committed.


COMMIT, ABORT = b"\x00\x00\x00\x01", b"\x00\x00\x00\x00"


@dataclass(frozen=True)
class Batch:
    """producer: None for a batch of no transaction. values: with `marker` it is a transaction's end."""

    offset: int
    producer: int | None
    values: tuple[str, ...] = ()
    marker: bytes | None = None

    def encode(self) -> bytes:
        records = [NewRecord(None, value.encode(), 0) for value in self.values] or [NewRecord(self.marker, b"", 0)]
        batch = small_batch(
            records,
            producer_id=-1 if self.producer is None else self.producer,
            transactional=self.producer is not None,
            control=self.marker is not None,
        )
        return self.offset.to_bytes(8, "big") + batch[8:]  # where it is in the log is no part of the CRC


def answer(*batches: Batch, aborted: dict[int, int] | None = None) -> PartitionData:
    """aborted: the first offset of an aborted transaction by producer."""
    return PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=100,
        aborted_transactions=[AbortedTransaction(producer_id=p, first_offset=o) for p, o in (aborted or {}).items()],
        records=[batch.encode() for batch in batches],
    )


def read(said: PartitionData, position: int = 0) -> tuple[list[str], int]:
    """The values, and the position after them."""
    values = []
    for record, after in committed_records(said, position):
        position = after
        if record is not None:
            values.append((record.value or b"").decode())
    return values, position


def test_records_of_committed_transactions_and_of_none_are_read() -> None:
    said = answer(Batch(0, 7, ("a", "b")), Batch(2, 7, marker=COMMIT), Batch(3, None, ("c",)))

    assert read(said) == (["a", "b", "c"], 4)


def test_records_of_an_aborted_transaction_are_not_but_those_of_its_producers_others_are() -> None:
    said = answer(
        Batch(0, 7, ("first",)),
        Batch(1, 7, marker=COMMIT),
        Batch(2, 7, ("aborted",)),
        Batch(3, 8, ("another's",)),
        Batch(4, 7, marker=ABORT),
        Batch(5, 7, ("third",)),
        Batch(6, 8, marker=COMMIT),
        Batch(7, 7, marker=COMMIT),
        aborted={7: 2},
    )

    assert read(said) == (["first", "another's", "third"], 8)


def test_a_batch_that_begins_before_the_position_is_read_from_the_position_on() -> None:
    assert read(answer(Batch(4, 7, ("a", "b", "c"))), position=5) == (["b", "c"], 7)


def test_offsets_that_compaction_has_taken_out_are_passed_over() -> None:
    assert read(answer(Batch(0, 7, ("a",)), Batch(90, 7, ("b",)))) == (["a", "b"], 91)


def test_a_batch_that_is_cut_off_is_left_for_the_next_answer() -> None:
    whole, cut = Batch(0, 7, ("a",)).encode(), Batch(1, 7, ("b",)).encode()[:-1]
    said = PartitionData(partition_index=0, error_code=0, high_watermark=9, records=[whole, cut])

    assert read(said) == (["a"], 1)


def test_an_answer_without_records_leaves_the_position() -> None:
    assert read(PartitionData(partition_index=0, error_code=0, high_watermark=9), position=5) == ([], 5)
