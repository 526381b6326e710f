"""The commit log on brokers: claimed, read and written, by one and by several."""

from __future__ import annotations

import json

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.exactly_once.commit_log import CommitLog, LoggedRecord, old_jobs, partition_of
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State, encode_key
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from tests.exactly_once.opened import a_record, client_of, new_id, query, soon, until_committed
from tests.kafka.fixtures import only_real_kafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic
from tests.tiers import whole_but


@pytest.fixture(params=whole_but([1, 2], [2], "test_committer.py has logs of version 1"), ids=["tv1", "tv2"])
def transaction_version(request: pytest.FixtureRequest) -> int:
    version: int = request.param
    return version


def test_to_read_last_records_makes_no_topic(log: CommitLog, settings: CommitLogSettings, transaction_kafka: Kafka) -> None:
    assert log.last_records(soon()).records == {}
    assert settings.topic not in transaction_kafka.metadata().topics


def test_what_was_written_is_what_the_next_claim_reads(
    log: CommitLog, settings: CommitLogSettings, transaction_kafka: Kafka
) -> None:
    ids = query()
    claim = log.claim(ids, soon())
    for record in (prepared := a_record(ids, 7), complete := a_record(ids, 7, State.COMPLETE), a_record(ids, 8)):
        claim.write(record, soon())
        last = record
    with client_of(transaction_kafka) as other:
        read_cold = CommitLog(other, settings).claim(ids, soon()).last
    read_warm = log.claim(ids, soon()).last

    assert read_cold == read_warm == claim.last == last
    assert last not in (prepared, complete)


def test_another_consumer_reads_what_is_committed(log: CommitLog, settings: CommitLogSettings, transaction_kafka: Kafka) -> None:
    ids = query()
    log.claim(ids, soon()).write(a_record(ids, 7), soon())
    ((key, value),) = until_committed(transaction_kafka, settings, 1)

    assert key == encode_key(ids.query_id, 0)
    assert {name: json.loads(value or b"")[name] for name in ("query_id", "batch", "state", "rows")} == {
        "query_id": ids.query_id,
        "batch": 7,
        "state": "prepared",
        "rows": 20,
    }


def test_a_record_of_many_transactions_is_written_in_chunks_and_those_that_are_no_more_are_removed(
    client: ClusterClient, settings: CommitLogSettings, transaction_kafka: Kafka
) -> None:
    log = CommitLog(client, settings, chunk_bytes=2000)
    ids = query()
    long, short = a_record(ids, 1, transactions=100), a_record(ids, 2)
    log.claim(ids, soon()).write(long, soon())
    claim = log.claim(ids, soon())
    read_long = claim.last
    claim.write(short, soon())
    read_short = CommitLog(client, settings).claim(ids, soon()).last
    keys = dict(until_committed(transaction_kafka, settings, 2))

    assert (read_long, read_short) == (long, short)
    assert len(keys) > 3
    assert [key for key, value in keys.items() if value is not None] == [encode_key(ids.query_id, 0)]


def test_who_claims_later_takes_the_log_from_who_claimed_before(
    log: CommitLog, client: ClusterClient, settings: CommitLogSettings
) -> None:
    ids = query()
    first = log.claim(ids, soon())
    second = CommitLog(client, settings).claim(ids, soon())
    with pytest.raises(ClaimLostError, match=rf"{ids.commit_log} \(producer id \d+, epoch \d+\)"):
        first.write(a_record(ids, 1), soon())
    second.write(wanted := a_record(ids, 2), soon())
    with pytest.raises(ClaimLostError):
        first.write(a_record(ids, 3), soon())

    assert log.claim(ids, soon()).last == wanted


def test_who_lost_the_claim_between_two_records_writes_no_more(
    log: CommitLog, client: ClusterClient, settings: CommitLogSettings
) -> None:
    ids = query()
    first = log.claim(ids, soon())
    first.write(prepared := a_record(ids, 1), soon())
    second = CommitLog(client, settings).claim(ids, soon())
    with pytest.raises(ClaimLostError):
        first.write(a_record(ids, 1, State.COMPLETE), soon())

    assert second.last == log.claim(ids, soon()).last == prepared


@pytest.mark.fault("spark", "several queries with one prefix and one log")
def test_queries_of_one_partition_do_not_disturb_each_other(log: CommitLog, settings: CommitLogSettings) -> None:
    wanted = partition_of(query().query_id, settings.partitions)
    same = [ids for ids in (query() for _ in range(100)) if partition_of(ids.query_id, settings.partitions) == wanted][:3]
    claims = [log.claim(ids, soon()) for ids in same]
    records = [a_record(ids, number) for number, ids in enumerate(same)]
    for claim, record in zip(claims, records, strict=True):
        claim.write(record, soon())

    assert [log.claim(ids, soon()).last for ids in same] == records
    assert [log.last_records(soon()).records[ids.query_id].record for ids in same] == records


def test_all_queries_of_all_partitions_are_read(log: CommitLog, client: ClusterClient, settings: CommitLogSettings) -> None:
    records = []
    for number in range(8):
        ids = TransactionalIds(new_id("prefix"), f"query-{number}")  # known ones: of random ones some partition may get none
        log.claim(ids, soon()).write(record := a_record(ids, number), soon())
        records.append(record)

    assert {partition_of(record.query_id, settings.partitions) for record in records} == {0, 1, 2}
    found = CommitLog(client, settings).last_records(soon()).records
    assert [found[each.query_id].record for each in records] == records
    assert [found[each.query_id].partition for each in records] == [log.partition_of(each.query_id) for each in records]


def test_a_query_that_was_forgotten_has_no_record(client: ClusterClient, settings: CommitLogSettings) -> None:
    log = CommitLog(client, settings, chunk_bytes=2000)
    ids = query()
    claim = log.claim(ids, soon())
    claim.write(a_record(ids, 0, transactions=100), soon())
    claim.forget(soon())

    assert claim.last is None
    assert log.claim(ids, soon()).last is None
    assert CommitLog(client, settings).last_records(soon()).records == {}


def test_a_topic_that_was_made_anew_is_read_from_its_start(
    log: CommitLog, settings: CommitLogSettings, transaction_kafka: Kafka, client: ClusterClient
) -> None:
    ids, again = query(), query()
    for batch in range(5):
        log.claim(ids, soon()).write(a_record(ids, batch), soon())
    transaction_kafka.delete_topic(settings.topic)
    with client_of(transaction_kafka) as other:
        new = CommitLog(other, settings)
        new.ensure(soon())
        for batch in range(10):
            new.claim(again, soon()).write(wanted := a_record(again, batch), soon())

    assert log.claim(ids, soon()).last is None
    assert log.claim(again, soon()).last == wanted
    assert [each.record for each in log.last_records(soon()).records.values()] == [wanted]


# What the commit log may forget of batch jobs, and when


NOW_MS = 1_000_000_000
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("state", "hours", "is_old"),
    [
        (State.COMPLETE, 47, False),
        (State.COMPLETE, 49, True),
        (State.CLOSED, 0.9, False),
        (State.CLOSED, 1.1, True),
        (State.ABORTED, 1.1, True),
        (State.PREPARED, 10_000, False),
        (State.REPLAY, 10_000, False),
    ],
)
def test_that_a_job_is_complete_is_remembered_for_two_days(state: State, hours: float, *, is_old: bool) -> None:
    job, query = (LoggedRecord(CommitRecord(name, 0, state, "r", 5), 0, int(NOW_MS - hours * HOUR_MS)) for name in ("job-1", "q"))
    assert old_jobs([job, query], "prefix", NOW_MS) == ([job.record] if is_old else [])


# The commit log after Kafka has compacted it: as short as there are queries, and nothing that counts is gone


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
