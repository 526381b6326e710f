"""What the handlers of one broker work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.group.group_coordinator import GroupCoordinator
from spark_kafka_sink.broker.purgatory import DelayedOperationPurgatory
from spark_kafka_sink.broker.replica_manager import ReplicaManager
from spark_kafka_sink.broker.sasl.credentials import Credentials
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.broker.transaction.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from spark_kafka_sink.broker.transaction.transaction_coordinator import TransactionCoordinator


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """`node_id` and `replica_manager` are this broker's own; the others are shared by all brokers of the process.

    `wall_ms`: the time for timestamps, in ms since 1970.
    """

    node_id: int
    config: BrokerConfig
    cluster: Cluster
    replica_manager: ReplicaManager
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    add_partitions_to_txn_manager: AddPartitionsToTxnManager
    fetch_purgatory: DelayedOperationPurgatory
    credentials: Credentials
    timer: Timer
    wall_ms: Callable[[], int]
