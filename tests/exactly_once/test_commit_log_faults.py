"""The commit log where drivers leave it open, brokers go down, and answers are lost."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
from confluent_kafka.admin import ConfigResource

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import DeadlineError
from spark_kafka_sink.exactly_once.commit_log import CommitLog, partition_of
from spark_kafka_sink.exactly_once.commit_record import State, encode_key
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError, LogWriter
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.options.producer_options import ProducerConfig, producer_config
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.records.small_batches import NewRecord
from tests.exactly_once.opened import a_record, client_of, new_id, query, soon, until_committed, writer
from tests.kafka.brokers import Brokers
from tests.kafka.fixtures import ProxiedKafka, embedded_in_make_test

pytestmark = pytest.mark.slow


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


@embedded_in_make_test("10 s each; test_transaction_client.py has transactions that time out on real Kafka")
def test_an_open_transaction_of_another_query_is_waited_for(client: ClusterClient, settings: CommitLogSettings) -> None:
    one = replace(settings, partitions=1)
    log, ids = CommitLog(client, one), query()
    log.claim(ids, soon()).write(wanted := a_record(ids, 1), soon())
    dead = leave_open(client, one, query())
    with pytest.raises(DeadlineError, match=r"an open transaction blocks readers at offset \d+ of \d+"):
        log.claim(ids, soon(1.5))
    dead.commit(soon())
    leave_open(client, replace(one, transaction_timeout_ms=1_000), query())

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
    with pytest.raises(ClaimLostError, match="were written after it was read"):
        claim.write(a_record(mine, 1), soon())
    undisturbed.write(wanted := a_record(other, 1), soon())

    assert [log.claim(mine, soon()).last, log.claim(other, soon()).last] == [None, wanted]


@pytest.mark.whole("24 s; tests/exactly_once/test_commit_log_topic.py has a log on three brokers")
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


def test_a_record_whose_commit_is_not_answered_loses_the_claim(proxied_kafka: ProxiedKafka) -> None:
    settings = CommitLogSettings(new_id("commits"), partitions=1)
    ids = query()
    with client_of(proxied_kafka.proxy.address) as client:
        log = CommitLog(client, settings)
        log.ensure(soon())
        unlucky = leave_open(client, settings, ids)
        proxied_kafka.proxy.pause("to_client")
        with pytest.raises(ClaimLostError, match="did not respond to END_TXN"):
            unlucky.commit(soon(1.5))
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
