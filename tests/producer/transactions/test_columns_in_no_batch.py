"""Columns that are not, or not all, in batches take their transaction with them; a call that was wrong does not."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.errors import (
    BufferExhaustedError,
    RecordTooLargeError,
    SchemaError,
    TransactionAbortableError,
)
from spark_kafka_sink.producer.producer import Producer
from spark_kafka_sink.producer.scopes.send_scope import SendScope
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.records.columns import RecordColumns
from tests.faults.producing import failing_scope, numbers
from tests.producer.inside import columns_of, meet
from tests.producer.transactions.transacting import under_id, until_read
from tests.tiers import whole_but

LITTLE_MEMORY: dict[str, Any] = {"max_block_ms": 3_000, "buffer_memory": 200_000}
ROWS = 60_000
only_version_2 = pytest.mark.parametrize(
    "transaction_version",
    whole_but([1, 2], [2], "3 s each; the producer misses the rows itself"),
    ids=["tv1", "tv2"],
    indirect=True,
)


def append_too_much(broker: EmbeddedBroker, scope: SendScope, topic: str) -> None:
    """More than there is memory for while the leader says nothing."""
    scope.append(topic, numbers([0]))
    scope.flush(60)
    with broker.faults.hold(ApiKey.PRODUCE, topic=topic):
        with pytest.raises(BufferExhaustedError) as refused:
            scope.append(topic, numbers(range(1, ROWS)))
        assert 0 < refused.value.facts["buffered"] < ROWS - 1


def commit_next(producer: Producer, topic: str) -> None:
    producer.abort_transaction(60)
    producer.begin_transaction()
    producer.send(topic, b"7")
    producer.commit_transaction(60)


@only_version_2
def test_rows_that_there_was_no_memory_for_are_missed_by_the_commit(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic, initialized=False, **LITTLE_MEMORY) as producer:
        producer.init_transactions(60)  # not bounded by max.block.ms, nor is the first metadata
        meet(producer, topic)
        producer.begin_transaction()
        with failing_scope(producer) as scope:
            append_too_much(broker, scope, topic)
            with pytest.raises(TransactionAbortableError, match=r"buffer\.memory"):
                producer.commit_transaction(60)
        commit_next(producer, topic)
    until_read(broker, topic, [7])


def test_a_row_that_is_too_large_is_missed_by_the_commit(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        with failing_scope(producer) as scope:
            with pytest.raises(RecordTooLargeError):
                scope.append(topic, numbers([1], width=2_000_000))
            with pytest.raises(TransactionAbortableError, match="RECORD_TOO_LARGE"):
                producer.commit_transaction()
        commit_next(producer, topic)
    until_read(broker, topic, [7])


def test_an_append_that_is_interrupted_is_missed_by_the_commit(
    broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with under_id(broker.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        with failing_scope(producer) as scope:
            with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                patched.setattr(columns_of(producer), "_placed", interrupted)
                scope.append(topic, numbers([1]))
            with pytest.raises(TransactionAbortableError, match="failed with KeyboardInterrupt"):
                producer.commit_transaction()
        commit_next(producer, topic)
    until_read(broker, topic, [7])


def test_a_wrong_call_harms_nothing_that_was_sent(broker: EmbeddedBroker, topic: str) -> None:
    with under_id(broker.bootstrap_servers, topic) as producer:
        producer.begin_transaction()
        with producer.scope() as scope:
            scope.append(topic, numbers([1]))
            with pytest.raises(SchemaError):
                scope.append(topic, RecordColumns(1, value=pa.array([1.5])))
        producer.commit_transaction()
    until_read(broker, topic, [1])
