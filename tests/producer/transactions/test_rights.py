"""A right that a transaction lacks: what is named, and whether the transaction can be aborted."""

from __future__ import annotations

import itertools
import os

import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    AuthorizationError,
    KafkaSinkError,
    TransactionAbortableError,
    TransactionAuthorizationError,
)
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode
from tests.producer.transactions.transacting import under_id

pytestmark = pytest.mark.slow

A, E = ApiKey, ErrorCode
_numbers = itertools.count()
WRITE_ID = ("Write", "transactional id {id}", "--operation Write --operation Describe --transactional-id {id}")
READ_GROUP = ("Read", "group readers", "--operation Read --group readers")
WRITE_TOPIC = ("Write", "topic {id}", "--operation Write --topic {id}")

# By request and code: operation, resource, the line's end, and whether the producer can go on.
ROWS = [
    (A.ADD_PARTITIONS_TO_TXN, E.TOPIC_AUTHORIZATION_FAILED, WRITE_TOPIC, True),
    (A.PRODUCE, E.TOPIC_AUTHORIZATION_FAILED, WRITE_TOPIC, True),
    (A.ADD_OFFSETS_TO_TXN, E.GROUP_AUTHORIZATION_FAILED, READ_GROUP, True),
    (A.TXN_OFFSET_COMMIT, E.GROUP_AUTHORIZATION_FAILED, READ_GROUP, True),
    (A.TXN_OFFSET_COMMIT, E.TOPIC_AUTHORIZATION_FAILED, ("Read", "topic first", "--operation Read --topic first"), True),
    (A.ADD_PARTITIONS_TO_TXN, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, WRITE_ID, False),
    (A.ADD_OFFSETS_TO_TXN, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, WRITE_ID, False),
    (A.TXN_OFFSET_COMMIT, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, WRITE_ID, False),
    (A.PRODUCE, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, WRITE_ID, False),
    (A.END_TXN, E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, WRITE_ID, False),
]


def lacks(error: BaseException | None, transactional_id: str) -> tuple[str, str, str]:
    """Returns operation, resource and the end of the line that grants it, with {id} for the id."""
    assert isinstance(error, AuthorizationError)
    assert f"`{error.facts['acl']}`" in str(error)
    grants = error.facts["acl"].partition("--allow-principal User:ANONYMOUS ")[2]
    operation, resource, line = (
        text.replace(transactional_id, "{id}") for text in (error.facts["operation"], error.facts["resource"], grants)
    )
    return operation, resource, line


def transact(producer: Producer, topic: str) -> None:
    producer.begin_transaction()
    producer.send(topic, b"1")
    producer.send_offsets_to_transaction({("first", 0): 1}, "readers")
    producer.commit_transaction()


@pytest.mark.parametrize("transaction_version", [1], ids=["tv1"], indirect=True)
@pytest.mark.parametrize(("api", "code", "wanted", "goes_on"), ROWS, ids=[f"{row[0].name}-{row[1].name}" for row in ROWS])
def test_it_is_named_and_ends_what_it_is_about(
    broker: EmbeddedBroker, api: ApiKey, code: ErrorCode, wanted: tuple[str, str, str], goes_on: bool
) -> None:
    topic = f"rights-{os.getpid()}-{next(_numbers)}"
    with under_id(broker.bootstrap_servers, topic, max_block_ms=20_000) as producer:
        fault = broker.faults.fail(api, code, times=None)
        with pytest.raises(KafkaSinkError) as caught:
            transact(producer, topic)
        assert fault.hits == 1
        fault.remove()
        error = caught.value
        cause = error.__cause__ if goes_on else error
        assert type(error) is (TransactionAbortableError if goes_on else TransactionAuthorizationError)
        assert lacks(cause, topic) == wanted
        if goes_on:
            producer.abort_transaction()
            transact(producer, topic)
        else:
            with pytest.raises(TransactionAuthorizationError):
                producer.abort_transaction()
