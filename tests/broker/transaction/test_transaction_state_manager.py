"""The records of `__transaction_state`: Kafka's own, back and forth."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from spark_kafka_sink.broker.log.log_types import TopicPartition
from spark_kafka_sink.broker.transaction.transaction_metadata import TransactionMetadata, TransactionState
from spark_kafka_sink.broker.transaction.transaction_state_manager import read_value, value_of
from spark_kafka_sink.errors import ProtocolError
from tests.broker.network.client import Client
from tests.broker.transaction.transactor import Transactor
from tests.kafka import java

RUNNING = TransactionMetadata(
    "t",
    7,
    60_000,
    producer_epoch=3,
    previous_producer_id=6,
    next_producer_id=8,
    state=TransactionState.PREPARE_COMMIT,
    partitions=frozenset({TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)}),
    start_ms=1000,
    last_update_ms=2000,
    client_version=2,
)


@pytest.mark.parametrize("status", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE, 8, -1])
def test_a_state_that_is_never_stored_is_refused(status: int) -> None:
    value = bytearray(value_of(RUNNING, 2))
    value[2 + 8 + 2 + 4] = status % 256
    with pytest.raises(ProtocolError):
        read_value("t", bytes(value))


@pytest.mark.java
def test_kafka_reads_them(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=tmp_path, transaction_state_log_num_partitions=1)
    with EmbeddedBroker(config=config) as broker:
        topic = broker.create_topic("topic", 2)
        host, port = broker.bootstrap_servers.rsplit(":", 1)
        with Client(int(port), host) as client:
            txn = Transactor(client, "my-id", topic)
            who = txn.init().producer
            txn.produce(who, partition=1)
            txn.commit(who)
            txn.settle()
    (file,) = (str(found) for found in tmp_path.rglob("__transaction_state-0/*.log"))
    printed = java.run("kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", file, timeout_s=60)
    lines = [line for line in printed.splitlines() if "my-id" in line]
    for line, status, epoch in zip(lines, (0, 1, 2, 4), (0, 0, 1, 1), strict=True):
        assert f'"producerId":{who.producer_id}' in line
        assert f'"transactionStatus":{status},' in line
        assert f'"producerEpoch":{epoch},' in line
    assert '"topic":"topic","partitionIds":[1]' in lines[1]
    assert '"clientTransactionVersion":2' in lines[3]
