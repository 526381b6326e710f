"""The commit log after Kafka has compacted it: as short as there are queries, and nothing that counts is gone."""

from __future__ import annotations

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.options.commit_log_options import CommitLogSettings
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from tests.exactly_once.opened import client_of, new_id, soon
from tests.kafka.fixtures import only_real_kafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic

# Each is over half of a chunk, two are a segment of 1 MB.
LARGE = "x" * 600_000
BATCHES = 12


def record(ids: TransactionalIds, batch: int, transactions: int) -> CommitRecord:
    handles = [TransactionHandle(ids.for_slot("a", n), n, 0, 2, 1, ((LARGE, "0"),)) for n in range(transactions)]
    prepared = tuple(PreparedTransaction(handle, n, 7) for n, handle in enumerate(handles))
    return CommitRecord(ids.query_id, batch, State.COMPLETE, new_id("record"), transactions, prepared)


def write_and_read_when_compacted(kafka: Kafka) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    lasting, ended, busy = (TransactionalIds(new_id("prefix"), new_id("query")) for _ in range(3))
    with client_of(kafka) as client:
        log = CommitLog(client, settings)
        log.claim(lasting, soon()).write(first := record(lasting, 0, 2), soon())
        claim = log.claim(ended, soon())
        claim.write(record(ended, 0, 3), soon())
        claim.forget(soon())
        claim = log.claim(busy, soon())
        for batch in range(BATCHES):
            claim.write(last := record(busy, batch, 1 + batch % 3), soon())
        written = 2 + 6 + BATCHES * 2
        kafka.wait_for(
            lambda: len(read_topic(kafka.bootstrap_servers, settings.topic)) < written - 6, f"{settings.topic} compacted", 60
        )
        warm = [log.claim(ids, soon()).last for ids in (lasting, ended, busy)]
        cold = CommitLog(client, settings)

        assert [cold.claim(ids, soon()).last for ids in (lasting, ended, busy)] == warm == [first, None, last]
        found = {query_id: each.record for query_id, each in cold.last_records(soon()).records.items()}
        assert found == {each.query_id: each for each in (first, last)}
    kafka.delete_topic(settings.topic)


@pytest.mark.embedded
def test_what_an_embedded_broker_compacts_is_read_as_before() -> None:
    with EmbeddedBroker(config=BrokerConfig(log_cleaner_backoff_ms=100)) as broker:
        write_and_read_when_compacted(Kafka(broker.bootstrap_servers))


@pytest.mark.whole("10 s until Kafka compacts; the test before it has an embedded broker")
@only_real_kafka  # the embedded one that tests share compacts too seldom
def test_what_kafka_compacts_is_read_as_before(kafka: Kafka) -> None:
    write_and_read_when_compacted(kafka)
