"""The services that handlers use, of one broker and of all brokers of the process."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.broker.acl import Acl, StandardAuthorizer
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.cluster import Cluster, CoordinatorType, log_changes
from spark_kafka_sink.broker.cluster.credentials import Credentials
from spark_kafka_sink.broker.cluster.metadata_image import (
    GROUP_METADATA_TOPIC,
    INTERNAL_TOPICS,
    NO_LEADER,
    TRANSACTION_STATE_TOPIC,
    partition_for,
)
from spark_kafka_sink.broker.coordinator_log import InternalTopicLog, TransactionMarkers
from spark_kafka_sink.broker.faults.fault_injection import FaultInjection
from spark_kafka_sink.broker.group.group_coordinator import GroupCoordinator
from spark_kafka_sink.broker.log.log_manager import LogManager, ReplicaManager
from spark_kafka_sink.broker.timer import DelayedOperationPurgatory, SystemTimer, Timer
from spark_kafka_sink.broker.transaction.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from spark_kafka_sink.broker.transaction.transaction_coordinator import TransactionCoordinator
from spark_kafka_sink.broker.transaction.transaction_marker_channel_manager import MarkerRoute, MarkerSender
from spark_kafka_sink.errors import UsageError


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The services that the handlers of one broker use.

    `node_id` and `replica_manager` belong to this broker; all brokers of the process share the rest. `authorizer` is None if
    every client may do everything. `wall_ms` returns the time for timestamps, in ms since
    1970.
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
    authorizer: StandardAuthorizer | None
    timer: Timer
    wall_ms: Callable[[], int]


LOCK_FILE = ".lock"


def wall_ms() -> int:
    """Returns the time for timestamps, in ms since 1970."""
    return time.time_ns() // 1_000_000


class SharedServices:
    """The services that all brokers of the process share: the cluster's state, the logs and the coordinators.

    The constructor locks the data folder; `start` loads what is stored there. One thread creates, starts and stops it.
    """

    def __init__(self, config: BrokerConfig, timer: Timer | None = None, faults: FaultInjection | None = None) -> None:
        """Locks the data folder and creates the services.

        Raises:
            UsageError: another process uses the folder.
        """
        self._config = config
        self.faults = FaultInjection(()) if faults is None else faults
        self._closing = ExitStack()
        if config.data_dir is not None:
            config.data_dir.mkdir(0o700, parents=True, exist_ok=True)
            self._closing.enter_context(_locked(config.data_dir))
        self.timer = SystemTimer() if timer is None else timer
        self.cluster = Cluster(config)
        self.cluster.on_change(log_changes)
        self._credentials = Credentials(config.sasl_users, lambda: self.cluster.image.scram)
        self._authorizer = authorizer_of(config, lambda: self.cluster.image.acls)
        self.fetch_purgatory = DelayedOperationPurgatory(self.timer)
        self.logs = LogManager(
            self.cluster, self.timer, wall_ms=wall_ms, on_advance=self._advanced, check_disk=self.faults.storage.check_disk
        )
        self.group_coordinator = GroupCoordinator(
            InternalTopicLog(GROUP_METADATA_TOPIC, self.cluster, self.logs, wall_ms), self.timer, config, wall_ms
        )
        self.marker_sender = MarkerSender()
        self.transaction_coordinator = TransactionCoordinator(
            InternalTopicLog(TRANSACTION_STATE_TOPIC, self.cluster, self.logs, wall_ms),
            self.timer,
            config,
            wall_ms,
            self.cluster.next_producer_id,
            MarkerRoute(
                self.marker_sender.submit,
                write=self.faults.storage.holding(
                    TransactionMarkers(self.cluster, self.logs, self.group_coordinator.complete_transaction).write
                ),
                partition_exists=lambda topic, index: self.cluster.image.partition(topic, index) is not None,
                coordinator_epoch=self._coordinator_epoch,
            ),
        )
        self.add_partitions_to_txn_manager = AddPartitionsToTxnManager(
            self.transaction_coordinator,
            lambda transactional_id: self.cluster.coordinator(CoordinatorType.TRANSACTION, transactional_id) != NO_LEADER,
            self.timer,
        )

    def start(self) -> None:
        """Starts all services. Call it before any request is served."""
        self.timer.start()
        self.logs.start()
        self.group_coordinator.load()
        self.group_coordinator.follow(self.cluster)
        self.marker_sender.start()
        self.transaction_coordinator.load()

    def stop(self) -> None:
        """Stops all services. Call it after the last request is served."""
        self.transaction_coordinator.stop()
        self.marker_sender.stop()
        self.group_coordinator.close()
        self.timer.stop()
        self.fetch_purgatory.complete_all()
        self.logs.stop()
        self._closing.close()

    def of_broker(self, node_id: int) -> BrokerServices:
        """Returns the services for the handlers of one broker."""
        return BrokerServices(
            node_id=node_id,
            config=self._config,
            cluster=self.cluster,
            replica_manager=ReplicaManager(node_id, self.cluster, self.logs),
            group_coordinator=self.group_coordinator,
            transaction_coordinator=self.transaction_coordinator,
            add_partitions_to_txn_manager=self.add_partitions_to_txn_manager,
            fetch_purgatory=self.fetch_purgatory,
            credentials=self._credentials,
            authorizer=self._authorizer,
            timer=self.timer,
            wall_ms=wall_ms,
        )

    def _coordinator_epoch(self, transactional_id: str) -> int:
        """Returns the leader epoch of the id's partition, with which a new coordinator fences the previous one."""
        topic = self.cluster.internal_topic(TRANSACTION_STATE_TOPIC)
        return topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader_epoch

    def _advanced(self, topic: str, index: int) -> None:
        if topic in INTERNAL_TOPICS:
            # The coordinator appends under its own lock, where no request may be answered.
            self.timer.after(0, lambda: self.fetch_purgatory.check_and_complete((topic, index)))
        else:
            self.fetch_purgatory.check_and_complete((topic, index))


def authorizer_of(config: BrokerConfig, acls: Callable[[], Collection[Acl]]) -> StandardAuthorizer | None:
    """Returns the authorizer for these settings; None if every client may do everything."""
    if not config.has_authorizer:
        return None
    return StandardAuthorizer(acls, config.super_users, allow_if_no_acl=config.allow_everyone_if_no_acl_found)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Locks the data folder (Kafka's FileLock): two brokers would corrupt it. The OS releases the lock if the process dies."""
    with open(os.open(folder / LOCK_FILE, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = f"{folder} is in use by another broker: stop that broker or choose another folder"
            raise UsageError(text, data_dir=str(folder)) from None
        yield
        # A process forked in the meantime has the file open too. Without this call, its copy would keep the lock.
        fcntl.flock(file, fcntl.LOCK_UN)
