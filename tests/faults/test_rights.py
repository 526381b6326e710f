"""Requests that a broker refuses for a missing right: each fails at once, is sent once, and says what to grant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from spark_kafka_sink.errors import AuthorizationError, KafkaSinkError
from spark_kafka_sink.exactly_once.commit_log import CommitLog, last_records_of
from spark_kafka_sink.exactly_once.micro_batch import TransactionalIds
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.security.acls import COMMIT_LOG
from tests.exactly_once.opened import a_record, client_of, soon
from tests.faults.producing import failing_scope, numbers, one_by_one
from tests.faults.recording_broker import RecordingBroker

A, E = ApiKey, ErrorCode


@contextmanager
def refused_once(
    cluster: RecordingBroker, api: ApiKey, code: ErrorCode, requests: int = 1
) -> Iterator[pytest.ExceptionInfo[KafkaSinkError]]:
    """What happens inside raises an AuthorizationError, or what it is the cause of, after one request."""
    fault = cluster.faults.fail(api, code, times=None)
    with pytest.raises(KafkaSinkError, match=code.name) as caught:
        yield caught
    assert fault.hits == requests
    assert isinstance(caught.value, AuthorizationError) or isinstance(caught.value.__cause__, AuthorizationError)
    fault.remove()


def lacks(error: BaseException) -> tuple[str, str, str]:
    """Returns operation, resource and the end of the line that grants it."""
    error = error if isinstance(error, AuthorizationError) else error.__cause__ or error
    assert isinstance(error, AuthorizationError)
    acl = error.facts["acl"]
    assert f"`{acl}`" in str(error)
    return error.facts["operation"], error.facts["resource"], acl.partition("--allow-principal User:ANONYMOUS ")[2]


# A producer


@pytest.mark.fault("security", "a missing right")
def test_a_producer_without_idempotent_write_ends(cluster: RecordingBroker) -> None:
    with one_by_one(cluster.bootstrap_servers) as producer:
        with (
            refused_once(cluster, A.INIT_PRODUCER_ID, E.CLUSTER_AUTHORIZATION_FAILED) as caught,
            failing_scope(producer) as scope,
        ):
            scope.append("t", numbers([0]))
            scope.flush(10)
        with pytest.raises(AuthorizationError) as again:
            producer.send("t", b"1")
    assert lacks(caught.value) == ("IdempotentWrite", "the cluster", "--operation IdempotentWrite --cluster")
    assert lacks(again.value) == lacks(caught.value)
    assert cluster.received == []


@pytest.mark.fault("security", "a missing right")
@pytest.mark.parametrize(
    ("call", "topic"),
    [
        (lambda producer: producer.partitions_for("secret"), "secret"),
        (lambda producer: producer.send("secret", b"1").result(10), "secret"),
    ],
    ids=["partitions_for", "send"],
)
def test_a_topic_that_may_not_be_described_is_refused_at_once(
    cluster: RecordingBroker, call: Callable[[object], object], topic: str
) -> None:
    cluster.topic(topic)
    with (
        one_by_one(cluster.bootstrap_servers, max_block_ms=30_000) as producer,
        refused_once(cluster, A.METADATA, E.TOPIC_AUTHORIZATION_FAILED) as caught,
    ):
        call(producer)
    assert lacks(caught.value) == ("Describe", "topic secret", "--producer --topic secret")


# What reads and ends transactions: a driver's commits, and the command line

IDS = TransactionalIds("app", "6f8b1f0a-7c1c-4d9e-9a38-0d2b6a4f7a11")
ON_IDS = "--operation Write --operation Describe --transactional-id app. --resource-pattern-type prefixed"
HANDLE = TransactionHandle(IDS.for_slot("0123456789abcdef", 0), 1, 0, 2, 1)

CALLS: dict[ApiKey, tuple[str, Callable[[TransactionClient], object]]] = {
    A.FIND_COORDINATOR: ("Describe", lambda client: client.list_open("app.", soon())),
    A.DESCRIBE_TRANSACTIONS: ("Describe", lambda client: client.describe([HANDLE.transactional_id], soon())),
    A.INIT_PRODUCER_ID: ("Write", lambda client: client.init_producer_id(IDS.commit_log, 10_000, soon())),
    A.END_TXN: ("Write", lambda client: client.end([HANDLE], True, soon())),
}


@pytest.mark.parametrize("api", CALLS, ids=lambda api: api.name)
def test_a_transactional_id_that_may_not_be_used_is_refused_at_once(cluster: RecordingBroker, api: ApiKey) -> None:
    operation, call = CALLS[api]
    with client_of(cluster.bootstrap_servers) as client:
        transactions = TransactionClient(client)
        with refused_once(cluster, api, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED) as caught:
            call(transactions)
    assert lacks(caught.value) == (operation, "transactional ids app.*", ON_IDS)


def test_transactions_that_may_not_be_listed_are_an_error_and_not_an_empty_list(cluster: RecordingBroker) -> None:
    with (
        client_of(cluster.bootstrap_servers) as client,
        refused_once(cluster, A.LIST_TRANSACTIONS, E.CLUSTER_AUTHORIZATION_FAILED),
    ):
        TransactionClient(client).list_open("app.", soon())


LOG = CommitLogSettings("commits", partitions=1)
ON_LOG = {
    A.METADATA: "Describe",
    A.CREATE_TOPICS: "Create",
    A.DESCRIBE_CONFIGS: "DescribeConfigs",
    A.LIST_OFFSETS: "Describe",
    A.FETCH: "Read",
    A.PRODUCE: "Write",
}


@pytest.mark.parametrize("api", ON_LOG, ids=lambda api: api.name)
def test_the_topic_of_the_commit_log_is_granted_as_a_whole(cluster: RecordingBroker, api: ApiKey) -> None:
    with client_of(cluster.bootstrap_servers) as client:
        log = CommitLog(client, LOG)
        if api is A.PRODUCE:
            claim = log.claim(IDS, soon())
        # The first and the last offset are asked for at once.
        with refused_once(cluster, api, E.TOPIC_AUTHORIZATION_FAILED, 2 if api is A.LIST_OFFSETS else 1) as caught:
            if api is A.PRODUCE:
                claim.write(a_record(IDS, 0), soon())
            else:
                log.claim(IDS, soon())
    assert lacks(caught.value) == (ON_LOG[api], "topic commits", f"{COMMIT_LOG} --topic commits")


def test_a_commit_log_that_may_not_be_read_is_no_empty_one(cluster: RecordingBroker) -> None:
    cluster.topic("commits")
    with client_of(cluster.bootstrap_servers) as client, refused_once(cluster, A.METADATA, E.TOPIC_AUTHORIZATION_FAILED):
        last_records_of(client, "commits", soon())


def test_the_leader_of_a_topic_that_may_not_be_described_is_not_waited_for(cluster: RecordingBroker) -> None:
    with client_of(cluster.bootstrap_servers) as client:
        client.brokers(soon())
        with refused_once(cluster, A.METADATA, E.TOPIC_AUTHORIZATION_FAILED) as caught:
            client.leader("t", 0, soon())
    assert lacks(caught.value) == ("Describe", "topic t", "--producer --topic t")
