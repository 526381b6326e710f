"""The logs of all partitions, opened, maintained and deleted with their topics; and those that one broker leads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.cluster.metadata_image import MetadataImage, PartitionState, TopicState
from spark_kafka_sink.broker.log.log_cleaner import maybe_compact
from spark_kafka_sink.broker.log.log_files import finish_deletions
from spark_kafka_sink.broker.log.log_types import (
    AppendOrigin,
    LogAppendInfo,
    LogHooks,
    PartitionName,
    TopicPartition,
    log_config,
)
from spark_kafka_sink.broker.log.producer_state import VerificationGuard
from spark_kafka_sink.broker.log.unified_log import UnifiedLog
from spark_kafka_sink.broker.server_properties import effective_config
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Buffer

logger = logging.getLogger(__name__)

_Upkeep = Callable[[UnifiedLog, int], object]


class LogManager:
    """The logs of all partitions (Kafka's LogManager), in one folder or in memory.

    The cluster's changes come one at a time, under its lock. `_logs` is replaced as a whole, so it is read without a lock.
    Retention and compaction run on a separate thread (`_upkeep`), each at its own interval, because they wait for the disk.
    """

    def __init__(
        self,
        cluster: Cluster,
        timer: Timer,
        *,
        wall_ms: Callable[[], int],
        on_advance: Callable[[str, int], None],
        check_disk: Callable[[str, int, int], None],
    ) -> None:
        """Creates the manager without opening logs.

        Args:
            cluster: the cluster whose topics have logs.
            timer: runs tasks later.
            wall_ms: returns the current time, in ms since 1970.
            on_advance: called, without a lock held, when a partition has more to read or another leader.
            check_disk: called before each append with the partition and the number of bytes. Raises OSError for a full disk.
        """
        self._config: BrokerConfig = cluster.config
        self._cluster = cluster
        self._timer = timer
        self._wall_ms = wall_ms
        self._on_advance = on_advance
        self._check_disk = check_disk
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._stopped = threading.Event()
        self._upkeep = threading.Thread(target=self._run_upkeep, name="kafka-log-retention", daemon=True)

    def start(self) -> None:
        if self._config.data_dir is not None:
            finish_deletions(self._config.data_dir)
        self._logs = {key: self._opened(topic, key[1]) for topic, key in _keys(self._cluster.image)}
        self._cluster.on_change(self._changed)
        self._upkeep.start()

    def stop(self) -> None:
        """Stops maintenance and stores everything on disk, with a mark that nothing needs recovery."""
        self._stopped.set()
        if self._upkeep.is_alive():
            self._upkeep.join(10.0)
        logs, self._logs = self._logs, {}
        for log in logs.values():
            _close(log)

    def get(self, topic: str, index: int) -> UnifiedLog | None:
        return self._logs.get(TopicPartition(topic, index))

    def _opened(self, topic: TopicState, index: int) -> UnifiedLog:
        data_dir = self._config.data_dir
        return UnifiedLog(
            None if data_dir is None else data_dir / f"{topic.name}-{index}",
            PartitionName(topic.name, index, topic.topic_id),
            log_config(self._config, topic),
            LogHooks(
                self._wall_ms,
                on_advance=lambda: self._on_advance(topic.name, index),
                check_disk=lambda size: self._check_disk(topic.name, index, size),
            ),
            producer_expiration_ms=self._config.producer_id_expiration_ms,
            verify_transactions=not self._config.release.is_2_1,
        )

    def _changed(self, before: MetadataImage, after: MetadataImage) -> None:
        logs = dict(self._logs)
        expected = {key: topic for topic, key in _keys(after)}
        doomed = [
            logs.pop(key) for key, log in self._logs.items() if key not in expected or log.topic_id != expected[key].topic_id
        ]
        logs.update(self._all_opened({key: topic for key, topic in expected.items() if key not in logs}))
        self._logs = logs
        for log in doomed:
            _delete(log)
        for key, topic in expected.items():
            known = before.topics.get(topic.name)
            if known is not None and known.configs != topic.configs:
                logs[key].update_config(log_config(self._config, topic))
        # Not here: the cluster's lock is held, and waiting requests read logs and answer.
        for moved in _moved(before, after):
            self._timer.after(0, partial(self._on_advance, *moved))

    def _all_opened(self, new: Mapping[TopicPartition, TopicState]) -> dict[TopicPartition, UnifiedLog]:
        """Opens all new logs or none, so a change that fails leaves nothing behind."""
        opened: dict[TopicPartition, UnifiedLog] = {}
        try:
            for key, topic in new.items():
                opened[key] = self._opened(topic, key[1])
        except BaseException:
            for log in opened.values():
                _delete(log)
            raise
        return opened

    def _run_upkeep(self) -> None:
        config = self._config
        intervals_ms: dict[_Upkeep, int] = {
            UnifiedLog.enforce_retention: config.log_retention_check_interval_ms,
            maybe_compact: config.log_cleaner_backoff_ms,
        }
        due_s = {task: time.monotonic() + ms / 1000 for task, ms in intervals_ms.items()}
        while not self._stopped.wait(max(0.0, min(due_s.values()) - time.monotonic())):
            task = min(due_s, key=lambda each: due_s[each])
            self._run_on_all_logs(task)
            due_s[task] = time.monotonic() + intervals_ms[task] / 1000

    def _run_on_all_logs(self, task: _Upkeep) -> None:
        for log in list(self._logs.values()):
            if self._stopped.is_set():
                return
            try:
                task(log, self._wall_ms())
            except ApiException as error:
                # One log without space must not stop the others, and a log deleted in the meantime is no problem.
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    logger.warning("Maintenance of %s failed: %s", log, error)
            except Exception:
                logger.exception("Retention or compaction of %s failed", log)


def _delete(log: UnifiedLog) -> None:
    """Deletes a log. A folder that cannot be deleted is harmless, because it has the old topic's id."""
    try:
        log.delete()
    except ApiException as error:
        logger.warning("Some files of %s could not be deleted: %s", log, error)


def _close(log: UnifiedLog) -> None:
    """Closes a log. One that fails, such as on a full disk, is recovered at the next start."""
    try:
        log.close()
    except ApiException as error:
        logger.warning("%s could not be closed cleanly: %s", log, error)


def _keys(image: MetadataImage) -> list[tuple[TopicState, TopicPartition]]:
    return [(topic, TopicPartition(topic.name, partition.index)) for topic, partition in image.partitions()]


def _moved(before: MetadataImage, after: MetadataImage) -> list[TopicPartition]:
    """Returns the partitions that are gone or have another leader, so requests that wait for them must look for it."""
    return [
        TopicPartition(topic.name, partition.index)
        for topic, partition in before.partitions()
        if (now := after.partition(topic.name, partition.index)) is None or now.leader_epoch != partition.leader_epoch
    ]


NO_EPOCH = -1
ALL_REPLICAS = -1


@dataclass(frozen=True, slots=True)
class LedPartition:
    """A partition that this broker leads now."""

    state: PartitionState
    log: UnifiedLog


class ReplicaManager:
    """Reads and writes the partitions that one broker leads. It has no mutable state, so any thread may call it."""

    def __init__(self, node_id: int, cluster: Cluster, logs: LogManager) -> None:
        self._node_id = node_id
        self._cluster = cluster
        self._logs = logs

    def led(self, topic: str, index: int, leader_epoch: int = NO_EPOCH) -> LedPartition:
        """Returns a partition that this broker leads.

        `leader_epoch` is the client's (KIP-320). If it is older or newer than the broker's, the call fails.

        Raises:
            ApiException: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        state = self._cluster.image.partition(topic, index)
        if state is None:
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        # The epoch is checked first, as in Kafka's `Partition.getLocalLog`: a client with an old epoch must refresh metadata
        # anyway.
        if leader_epoch not in (NO_EPOCH, state.leader_epoch):
            older = leader_epoch < state.leader_epoch
            raise ApiException(ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if state.leader != self._node_id:
            raise ApiException(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        log = self._logs.get(topic, index)
        if log is None:  # it was deleted between the two lookups
            raise ApiException(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return LedPartition(state, log)

    def log_start_offset(self, topic: str, index: int) -> int:
        """Returns the first offset, regardless of the leader; -1 if there is no such partition."""
        log = self._logs.get(topic, index)
        return -1 if log is None else log.log_start_offset

    def log_size(self, topic: str, index: int) -> int | None:
        """Returns the size in bytes, regardless of the leader; None if there is no such partition."""
        log = self._logs.get(topic, index)
        return None if log is None else log.size

    def append(
        self, topic: str, index: int, records: Buffer, acks: int, *, guard: VerificationGuard | None = None
    ) -> LogAppendInfo:
        """Appends a client's batch. Raises ApiException with an error of `led` or of the log, or NOT_ENOUGH_REPLICAS."""
        led = self.led(topic, index)
        state = self._cluster.image.topics.get(topic)
        needed = 1
        if state is not None and acks == ALL_REPLICAS:
            needed = effective_config(self._cluster.config, state.configs, "min.insync.replicas")
        if len(led.state.isr) < needed:
            text = f"The size of the current ISR {set(led.state.isr)} is insufficient to satisfy the min.isr requirement."
            raise ApiException(ErrorCode.NOT_ENOUGH_REPLICAS, text)
        return led.log.append_as_leader(records, led.state.leader_epoch, origin=AppendOrigin.CLIENT, guard=guard)
