"""The records of `__transaction_state`: Kafka's own, back and forth."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker
from tests.broker.network.client import Client
from tests.broker.transaction.transactor import Transactor
from tests.kafka import java


@pytest.mark.java
def test_kafka_reads_them(tmp_path: Path) -> None:
    config = BrokerConfig(data_dir=tmp_path, transaction_state_log_num_partitions=1)
    with EmbeddedBroker(config=config) as broker:
        topic = broker.create_topic("topic", 2)
        with Client.at(broker.bootstrap_servers) as client:
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
