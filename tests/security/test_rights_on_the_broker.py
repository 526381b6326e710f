"""A client without rights asks for one after the other, as the lines of its errors have it, and works with those of the page."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from spark_kafka_sink.broker.acl import Acl, parse_acls
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import AuthorizationError, KafkaSinkError
from spark_kafka_sink.exactly_once.commit_log import CommitLog
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.committer import Committer
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.records.columns import RecordColumns
from tests.docs.security_blocks import acl_lines

PREFIX = "spark-kafka-sink"
CONFIG = BrokerConfig(
    sasl_users={"sink": "word"}, acls=[], transaction_state_log_num_partitions=2, auto_create_topics_enable=False
)


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    """Its only user is `sink`, who has no rights."""
    with EmbeddedBroker(config=CONFIG) as made:
        made.create_topic("events")
        yield made


def page(*headings: str) -> set[Acl]:
    """The ACLs of the page's lines."""
    return {acl for heading in headings for words in acl_lines(heading) for acl in parse_acls(shlex.join(words))}


def asked_for(broker: EmbeddedBroker, work: Callable[[], object]) -> set[Acl]:
    """Does the work again and again, each time with the ACLs of its error, until it works; returns all of them."""
    granted: set[Acl] = set()
    while True:
        try:
            work()
            return granted
        except KafkaSinkError as error:
            denied = error if isinstance(error, AuthorizationError) else error.__cause__
        assert isinstance(denied, AuthorizationError), repr(denied)
        new = set(parse_acls(denied.facts["acl"]))
        assert not new <= granted, f"asks again for what it has: {denied}"
        granted |= new
        broker.cluster.add_acls(new)


def write(broker: EmbeddedBroker) -> None:
    with Producer(broker.client_settings) as producer:
        producer.send("events", b"1").result(60)


def commit_a_batch(broker: EmbeddedBroker) -> None:
    """As a driver and a task of a new query do, and the command line after them."""
    batch = MicroBatch(str(uuid.uuid4()), 0)
    with ClusterClient(producer_config(broker.client_settings)) as client:
        transactions = TransactionClient(client)
        committer = Committer(CommitLog(client), transactions, PREFIX, 20)
        committer.check(batch, 20)
        identity = TransactionalIds(PREFIX, batch.query_id).for_slot("0123456789abcdef", 0)
        with Producer(broker.client_settings, transactional=True) as producer, producer.transaction(identity) as scope:
            scope.append("events", RecordColumns(1, value=pa.array(["1"])))
            handle = scope.prepare()
        assert handle is not None
        assert committer.commit(batch, (PreparedTransaction(handle, 0, 0),)).rows == 1
        assert transactions.list_open(f"{PREFIX}.", 1e9) == []


def test_writing_asks_for_the_rights_of_a_producer(broker: EmbeddedBroker) -> None:
    assert asked_for(broker, lambda: write(broker)) == set(parse_acls("--allow-principal User:sink --producer --topic events"))


def test_writing_works_with_the_acls_of_the_page(broker: EmbeddedBroker) -> None:
    broker.cluster.add_acls(page("At-least-once"))
    write(broker)


def test_exactly_once_asks_for_the_acls_of_the_page_and_no_others(broker: EmbeddedBroker) -> None:
    asked = asked_for(broker, lambda: commit_a_batch(broker))
    own = set(parse_acls("--allow-principal User:sink --producer --topic events"))
    assert asked == page("Exactly-once") | own


def test_exactly_once_works_with_the_acls_of_the_page(broker: EmbeddedBroker) -> None:
    broker.cluster.add_acls(page("At-least-once", "Exactly-once"))
    commit_a_batch(broker)


def test_transactions_that_may_not_be_described_are_no_empty_list(broker: EmbeddedBroker) -> None:
    with ClusterClient(producer_config(broker.client_settings)) as client, pytest.raises(AuthorizationError) as caught:
        TransactionClient(client).list_open(f"{PREFIX}.", 1e9)
    assert caught.value.facts["principal"] == "User:sink"


@pytest.mark.parametrize("id_of_one", [f"{PREFIX}.log", f"{PREFIX}.6f8b1f0a-7c1c-4d9e-9a38-0d2b6a4f7a11.log"])
def test_the_right_to_describe_one_transaction_is_not_enough_for_a_list(broker: EmbeddedBroker, id_of_one: str) -> None:
    """The broker would leave all others out. The line of the error is about all of them."""
    broker.cluster.add_acls(parse_acls(f"--allow-principal User:sink --operation Describe --transactional-id {id_of_one}"))
    with ClusterClient(producer_config(broker.client_settings)) as client:
        transactions = TransactionClient(client)
        with pytest.raises(AuthorizationError) as caught:
            transactions.list_open(f"{PREFIX}.", 1e9)
        broker.cluster.add_acls([*page("At-least-once"), *parse_acls(caught.value.facts["acl"])])
        identity = TransactionalIds(PREFIX, str(uuid.uuid4())).for_slot("0123456789abcdef", 0)
        with Producer(broker.client_settings, transactional=True) as producer, producer.transaction(identity) as scope:
            scope.append("events", RecordColumns(1, value=pa.array(["1"])))
            scope.prepare()
        assert transactions.list_open(f"{PREFIX}.", 1e9) == [identity]
