"""Exactly-once at brokers that cannot keep its promise: it is refused; what is open there can still be ended."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import BrokerError, UnsupportedVersionError
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.exactly_once.opened import client_of, soon
from tests.exactly_once.queries import Query
from tests.kafka.embedded import EmbeddedKafka, hide, mixed_kafka

pytestmark = pytest.mark.embedded

LOG = "commits"
NEEDS = r"exactly-once requires Kafka 3\.8 or newer on every broker, but broker {} .*delivery.guarantee=at-least-once"


def query(kafka: EmbeddedKafka) -> Query:
    return Query(kafka, client_of(kafka), kafka.create_topic("events"), LOG)


@pytest.mark.parametrize("like", ["2.1", "3.7"])
def test_a_job_is_refused_before_its_tasks_write_and_before_a_commit_log_is_made(like: str) -> None:
    with EmbeddedKafka(in_memory=True, like=like) as kafka, query(kafka).client as client:
        refused = Query(kafka, client, "events", LOG)
        with pytest.raises(UnsupportedVersionError, match=NEEDS.format(1)):
            refused.committer().check(MicroBatch.of_new_job(), 30)
        assert LOG not in kafka.metadata().topics


@pytest.mark.parametrize("like", ["3.9", "4.1"])
def test_so_is_a_service_that_does_not_say_how_a_transaction_has_ended(like: str) -> None:
    with EmbeddedKafka(in_memory=True, like=like) as kafka:
        hide(kafka, ApiKey.DESCRIBE_TRANSACTIONS)
        made = query(kafka)
        refusal = r"does not support DescribeTransactions.*delivery\.guarantee=at-least-once"
        with made.client, pytest.raises(UnsupportedVersionError, match=refusal):
            made.committer().check(MicroBatch.of_new_job(), 30)


def test_a_service_that_refuses_to_say_so_aborts_the_batch_and_tells_what_works() -> None:
    with EmbeddedKafka(in_memory=True) as kafka:
        made = query(kafka)
        own = made.write("a")
        kafka.broker.faults.fail(ApiKey.DESCRIBE_TRANSACTIONS, ErrorCode.UNSUPPORTED_VERSION, times=None)
        with made.client, pytest.raises(BrokerError, match=r"DescribeTransactions .* set delivery\.guarantee=at-least-once"):
            made.commit(0, own)
        kafka.broker.faults.clear()
        made.expect()


@pytest.mark.parametrize("is_hidden", [True, False])
def test_a_service_that_lists_no_transactions_commits_and_leaves_those_of_lost_tasks_to_time_out(
    is_hidden: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with EmbeddedKafka(in_memory=True) as kafka:
        if is_hidden:
            hide(kafka, ApiKey.LIST_TRANSACTIONS)
        else:
            kafka.broker.faults.fail(ApiKey.LIST_TRANSACTIONS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None)
        made = query(kafka)
        with made.client:
            made.write("lost", topic=kafka.create_topic("of-lost-tasks"))  # it holds back the readers of that partition
            assert made.run(0, "a", "b").rows == 2
        made.expect("a", "b")
    assert "those of lost tasks are not aborted now" in caplog.text
    assert "end when they time out" in caplog.text


def test_one_older_broker_is_enough() -> None:
    with mixed_kafka(brokers=3) as kafka:
        made = query(kafka)
        with made.client, pytest.raises(UnsupportedVersionError, match=NEEDS.format(2)):
            made.committer().check(MicroBatch.of_new_job(), 30)


def test_a_broker_that_cannot_be_asked_is_passed_over() -> None:
    """Tasks look at each broker that they write to."""
    with EmbeddedKafka(2, in_memory=True, like="3.9") as kafka, client_of(kafka) as client:
        assert len(client.brokers(soon())) == 2
        with kafka.broker.faults.unreachable(2):
            TransactionClient(client).check_brokers(soon())


def test_brokers_that_keep_their_settings_to_themselves_are_taken_for_verifying() -> None:
    with EmbeddedKafka(in_memory=True, like="3.9") as kafka, client_of(kafka) as client:
        kafka.broker.faults.fail(ApiKey.DESCRIBE_CONFIGS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, times=None)
        TransactionClient(client).check_brokers(soon())


def test_a_stream_stops_at_its_first_commit_if_its_tasks_have_not_met_the_older_broker() -> None:
    with mixed_kafka() as kafka:
        made = query(kafka)
        with made.client:
            own = made.write("a")
            with pytest.raises(UnsupportedVersionError, match=NEEDS.format(2)) as raised:
                made.commit(0, own)
            assert "1 row of this run is not committed" in raised.value.__notes__[0]
            assert made.open_ids() == []
            made.expect()
