"""The commit log on brokers: claimed, read and written, by one and by several."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace

import pytest
from confluent_kafka.admin import AclOperation, ConfigResource, ResourceType

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.config import ProducerConfig, producer_config
from spark_kafka_sink.errors import BrokerError, DeadlineError, KafkaSinkError, OptionError, UnsupportedVersionError
from spark_kafka_sink.exactly_once import transaction_client
from spark_kafka_sink.exactly_once.claim_lost import ClaimLostError
from spark_kafka_sink.exactly_once.commit_log import CommitLog, partition_of
from spark_kafka_sink.exactly_once.commit_log_settings import CommitLogSettings
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, PreparedTransaction, State
from spark_kafka_sink.exactly_once.commit_record_codec import encode_key
from spark_kafka_sink.exactly_once.log_writer import LogWriter
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID
from spark_kafka_sink.records.small_batch import NewRecord
from tests.exactly_once.opened import client_of, new_id, soon, writer
from tests.kafka.acls import KafkaWithAcls
from tests.kafka.brokers import Brokers
from tests.kafka.fixtures import NewTopic, ProxiedKafka
from tests.kafka.kafka import Kafka
from tests.kafka.witness import read_topic


@pytest.fixture
def settings(transaction_kafka: Kafka) -> Iterator[CommitLogSettings]:
    """Of a topic of this test's own, which is not there yet."""
    made = CommitLogSettings(new_id("commits"), partitions=3)
    yield made
    if made.topic in transaction_kafka.metadata().topics:
        transaction_kafka.delete_topic(made.topic)


@pytest.fixture
def client(transaction_kafka: Kafka) -> Iterator[ClusterClient]:
    with client_of(transaction_kafka) as made:
        yield made


@pytest.fixture
def log(client: ClusterClient, settings: CommitLogSettings) -> CommitLog:
    return CommitLog(client, settings)


def query() -> TransactionalIds:
    return TransactionalIds(new_id("prefix"), new_id("query"))


def a_record(ids: TransactionalIds, batch: int, state: State = State.PREPARED, transactions: int = 2) -> CommitRecord:
    handles = [
        TransactionHandle(ids.for_slot("a", slot), 4000 + slot, batch, 5, 10, (("t", "0-7"),)) for slot in range(transactions)
    ]
    prepared = tuple(PreparedTransaction(handle, slot, 77) for slot, handle in enumerate(handles))
    return CommitRecord(ids.query_id, batch, state, new_id("record"), 10 * transactions, prepared)


def committed(kafka: Kafka, settings: CommitLogSettings) -> list[tuple[bytes | None, bytes | None]]:
    """Keys and values, as a consumer reads them that is not ours."""
    found = read_topic(kafka.bootstrap_servers, settings.topic, isolation_level="read_committed")
    return [(each.key, each.value) for each in found]


def until_committed(kafka: Kafka, settings: CommitLogSettings, count: int) -> list[tuple[bytes | None, bytes | None]]:
    """Markers are written after EndTxn was answered."""
    deadline = soon()
    while len(found := committed(kafka, settings)) < count:
        assert time.monotonic() < deadline
    return found


def test_a_query_that_nobody_knows_has_no_record(log: CommitLog) -> None:
    assert log.claim(query(), soon()).last is None
    assert log.read_all(soon()) == []


def test_to_read_all_makes_no_topic(log: CommitLog, settings: CommitLogSettings, transaction_kafka: Kafka) -> None:
    assert log.read_all(soon()) == []
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


def test_queries_of_one_partition_do_not_disturb_each_other(log: CommitLog, settings: CommitLogSettings) -> None:
    wanted = partition_of(query().query_id, settings.partitions)
    same = [ids for ids in (query() for _ in range(100)) if partition_of(ids.query_id, settings.partitions) == wanted][:3]
    claims = [log.claim(ids, soon()) for ids in same]
    records = [a_record(ids, number) for number, ids in enumerate(same)]
    for claim, record in zip(claims, records, strict=True):
        claim.write(record, soon())

    assert [log.claim(ids, soon()).last for ids in same] == records
    assert sorted(log.read_all(soon()), key=lambda each: each.batch) == records


def test_all_queries_of_all_partitions_are_read(log: CommitLog, client: ClusterClient, settings: CommitLogSettings) -> None:
    records = []
    for number in range(8):
        ids = TransactionalIds(new_id("prefix"), f"query-{number}")  # known ones: of random ones some partition may get none
        log.claim(ids, soon()).write(record := a_record(ids, number), soon())
        records.append(record)

    assert {partition_of(record.query_id, settings.partitions) for record in records} == {0, 1, 2}
    assert CommitLog(client, settings).read_all(soon()) == sorted(records, key=lambda each: each.query_id)


def test_a_query_that_was_deleted_has_no_record(client: ClusterClient, settings: CommitLogSettings) -> None:
    log = CommitLog(client, settings, chunk_bytes=2000)
    ids = query()
    claim = log.claim(ids, soon())
    claim.write(a_record(ids, 0, transactions=100), soon())
    log.delete(claim, soon())

    assert claim.last is None
    assert log.claim(ids, soon()).last is None
    assert CommitLog(client, settings).read_all(soon()) == []


def test_to_delete_what_is_not_there_writes_nothing(
    log: CommitLog, settings: CommitLogSettings, transaction_kafka: Kafka
) -> None:
    log.delete(log.claim(query(), soon()), soon())

    assert committed(transaction_kafka, settings) == []


def tombstone(ids: TransactionalIds) -> NewRecord:
    return NewRecord(encode_key(ids.query_id, 0), None, time.time_ns() // 1_000_000)


def leave_open(client: ClusterClient, settings: CommitLogSettings, ids: TransactionalIds) -> LogWriter:
    """What a driver does that claims the log, begins to write, and dies."""
    partition = partition_of(ids.query_id, settings.partitions)
    dead = writer(client, settings.topic, ids.commit_log, settings.transaction_timeout_ms, partition)
    dead.append([tombstone(ids)], soon())
    return dead


def test_what_a_driver_left_open_is_aborted_by_who_claims_next(
    log: CommitLog, client: ClusterClient, settings: CommitLogSettings
) -> None:
    ids = query()
    log.claim(ids, soon()).write(wanted := a_record(ids, 1), soon())
    leave_open(client, settings, ids)

    assert log.claim(ids, soon()).last == wanted
    assert CommitLog(client, settings).claim(ids, soon()).last == wanted


def test_an_open_transaction_of_another_query_is_waited_for(client: ClusterClient, settings: CommitLogSettings) -> None:
    one = replace(settings, partitions=1, transaction_timeout_ms=1_000)
    log, ids = CommitLog(client, one), query()
    log.claim(ids, soon()).write(wanted := a_record(ids, 1), soon())
    leave_open(client, one, query())
    with pytest.raises(DeadlineError, match=r"an open transaction holds readers back at offset \d+ of \d+"):
        log.claim(ids, soon(0.3))

    assert log.claim(ids, soon()).last == wanted  # its time-out has ended it


def test_what_a_leader_did_not_tell_of_loses_the_claim(
    log: CommitLog, client: ClusterClient, settings: CommitLogSettings
) -> None:
    one = replace(settings, partitions=1)
    log, mine, other = CommitLog(client, one), query(), query()
    claim, undisturbed = log.claim(mine, soon()), log.claim(other, soon())
    somebody = writer(client, one.topic, new_id())  # as if it had been there already
    somebody.append([tombstone(mine)], soon())
    somebody.commit(soon())
    with pytest.raises(ClaimLostError, match="were not there when it was read"):
        claim.write(a_record(mine, 1), soon())
    undisturbed.write(wanted := a_record(other, 1), soon())

    assert [log.claim(mine, soon()).last, log.claim(other, soon()).last] == [None, wanted]


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
    assert log.read_all(soon()) == [wanted]


def test_the_topic_is_compacted_in_small_segments(log: CommitLog, settings: CommitLogSettings, transaction_kafka: Kafka) -> None:
    log.ensure(soon())
    resource = ConfigResource(ConfigResource.Type.TOPIC, settings.topic)
    configs = transaction_kafka.admin.describe_configs([resource])[resource].result()

    assert configs["cleanup.policy"].value == "compact"
    assert configs["segment.bytes"].value == str(1024 * 1024)
    assert len(transaction_kafka.metadata(settings.topic).topics[settings.topic].partitions) == 3


def test_two_may_make_the_topic_at_once(transaction_kafka: Kafka, settings: CommitLogSettings) -> None:
    def ensure(_: int) -> CommitRecord | None:
        with client_of(transaction_kafka) as client:
            return CommitLog(client, settings).claim(query(), soon()).last

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ensure, range(4))) == [None] * 4


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_is_not_compacted_cannot_be_the_log(
    client: ClusterClient, transaction_kafka: Kafka, new_topic: NewTopic, policy: str
) -> None:
    topic = new_topic(2, on=transaction_kafka, config={"cleanup.policy": policy})  # of 8: that is not what is to be mended
    with pytest.raises(OptionError, match=rf"option commit\.log\.topic: topic {topic} has cleanup\.policy={policy},? .*set its"):
        CommitLog(client, CommitLogSettings(topic)).claim(query(), soon())


def test_a_topic_of_fewer_partitions_cannot_be_the_log(
    client: ClusterClient, transaction_kafka: Kafka, new_topic: NewTopic
) -> None:
    topic = new_topic(2, on=transaction_kafka, config={"cleanup.policy": "compact"})
    with pytest.raises(OptionError, match=r"option commit\.log\.partitions: topic .* has 2, not 8: set it to 2"):
        CommitLog(client, CommitLogSettings(topic)).ensure(soon())


def test_replication_that_cannot_be_had_is_an_error(client: ClusterClient, settings: CommitLogSettings) -> None:
    with pytest.raises(OptionError, match=r"option commit\.log\.replication\.factor: .* cannot be made with 5 replicas"):
        CommitLog(client, replace(settings, replication_factor=5)).ensure(soon())


def test_a_name_that_no_topic_can_have_is_an_error(client: ClusterClient) -> None:
    with pytest.raises(OptionError, match=r"option commit\.log\.topic: 'a b' is no topic's name"):
        CommitLog(client, CommitLogSettings("a b")).ensure(soon())


def test_a_timeout_over_the_brokers_limit_is_an_error(client: ClusterClient, settings: CommitLogSettings) -> None:
    with pytest.raises(OptionError, match=r"option transaction\.timeout\.ms"):
        CommitLog(client, replace(settings, transaction_timeout_ms=2**31 - 1)).claim(query(), soon())


def test_brokers_without_transactions_are_an_error(
    client: ClusterClient, settings: CommitLogSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To this client these brokers are as those of before Kafka 0.11, or a stand-in that lacks it.
    monkeypatch.setattr(transaction_client, "INITIALISING", INIT_PRODUCER_ID.limited_to(90, 90))
    with pytest.raises(
        UnsupportedVersionError, match=r"exactly-once needs brokers with transactions, Kafka 3\.0 .*INIT_PRODUCER_ID"
    ):
        CommitLog(client, settings).claim(query(), soon())


def test_on_three_brokers_a_record_outlives_one(kafka3: Brokers) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    ids = query()
    with client_of(kafka3) as client:
        log = CommitLog(client, settings)
        claim = log.claim(ids, soon())
        claim.write(a_record(ids, 0), soon())
        topic = kafka3.metadata(settings.topic).topics[settings.topic]
        resource = ConfigResource(ConfigResource.Type.TOPIC, settings.topic)
        configs = kafka3.admin.describe_configs([resource])[resource].result()
        kafka3.kill(topic.partitions[0].leader)
        claim.write(wanted := a_record(ids, 1), soon(60))
        found = log.claim(ids, soon(60)).last

    assert found == wanted
    assert configs["min.insync.replicas"].value == "2"
    assert len(topic.partitions[0].replicas) == 3


def test_a_log_that_is_made_while_a_broker_is_down_has_a_replica_there_too(kafka3: Brokers) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    with client_of(kafka3) as client:
        client.coordinators([query().commit_log], soon())  # tasks have begun transactions before anybody commits
        kafka3.kill(2)
        CommitLog(client, settings).ensure(soon())
    replicas = kafka3.metadata(settings.topic).topics[settings.topic].partitions[0].replicas
    assert sorted(replicas) == [1, 2, 3]


def test_a_record_whose_commit_is_not_answered_loses_the_claim(proxied_kafka: ProxiedKafka) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    ids = query()
    with client_of(proxied_kafka.proxy.address) as client:
        log = CommitLog(client, settings)
        log.ensure(soon())
        unlucky = leave_open(client, settings, ids)
        proxied_kafka.proxy.pause("to_client")
        with pytest.raises(ClaimLostError, match="did not answer END_TXN"):
            unlucky.commit(soon(0.5))
        proxied_kafka.proxy.heal()

        assert log.claim(ids, soon()).last is None  # the tombstone, committed or not


@pytest.mark.parametrize(("version", "is_lost"), [(1, True), (2, False)])
def test_an_end_that_may_still_arrive_costs_the_claim_where_it_could_end_the_next_record(version: int, *, is_lost: bool) -> None:
    config = BrokerConfig(transaction_version=0 if version == 1 else 2)
    with EmbeddedBroker(config=config) as broker, ClusterClient(own_config(broker)) as client:
        ids = query()
        claim = CommitLog(client, CommitLogSettings(partitions=1)).claim(ids, soon())
        broker.faults.cut_before(ApiKey.END_TXN)
        claim.write(a_record(ids, 0), soon())
        with pytest.raises(ClaimLostError, match="may still arrive") if is_lost else nullcontext():
            claim.write(a_record(ids, 0, State.COMPLETE), soon())


def own_config(broker: EmbeddedBroker) -> ProducerConfig:
    return producer_config({"bootstrap.servers": broker.bootstrap_servers})


def test_a_record_is_written_once_where_an_answer_is_lost(proxied_kafka: ProxiedKafka) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    ids = query()
    with client_of(proxied_kafka.proxy.address) as client:
        log = CommitLog(client, settings)
        claim = log.claim(ids, soon())
        proxied_kafka.proxy.cut_after(0, "to_client")
        claim.write(wanted := a_record(ids, 0), soon())

        assert log.claim(ids, soon()).last == wanted
    assert len(until_committed(proxied_kafka.cluster, settings, 1)) == 1


DENIED = [
    (AclOperation.CREATE, "CreateTopics answered TOPIC_AUTHORIZATION_FAILED: grant this client Create"),
    (AclOperation.DESCRIBE_CONFIGS, "DescribeConfigs answered TOPIC_AUTHORIZATION_FAILED: grant this client DescribeConfigs"),
    (AclOperation.READ, "Fetch of .*: TOPIC_AUTHORIZATION_FAILED: grant this client Read"),
    (AclOperation.WRITE, "TOPIC_AUTHORIZATION_FAILED: grant this client Write on the topic"),
    (AclOperation.DESCRIBE, "Metadata answered TOPIC_AUTHORIZATION_FAILED: grant this client Describe"),
]


@pytest.mark.parametrize(("operation", "match"), DENIED, ids=[operation.name for operation, _ in DENIED])
def test_what_is_not_allowed_names_the_acl(kafka_with_acls: KafkaWithAcls, operation: AclOperation, match: str) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    ids = query()
    with client_of(kafka_with_acls) as client:
        if operation is AclOperation.CREATE:  # who may create topics anywhere may also create this one
            kafka_with_acls.deny(ResourceType.BROKER, "kafka-cluster", operation)
        else:
            CommitLog(client, settings).ensure(soon())
        kafka_with_acls.deny(ResourceType.TOPIC, settings.topic, operation)
        with pytest.raises(KafkaSinkError, match=match) as caught:
            CommitLog(client, settings).claim(ids, soon()).write(a_record(ids, 0), soon())

    assert isinstance(caught.value, BrokerError)
    assert settings.topic in caught.value.message
