"""Ends transactions in the partitions that took part: what WriteTxnMarkers does between the brokers of a real cluster."""

from __future__ import annotations

from collections.abc import Sequence

from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.log.control_record import EndTransactionMarker
from spark_kafka_sink.broker.log.log_manager import LogManager

TopicPartition = tuple[str, int]


class TransactionMarkers:
    """From any thread. Writing one twice does no harm: a log whose producer has no open transaction takes it all the same."""

    def __init__(self, cluster: Cluster, logs: LogManager) -> None:
        self._cluster = cluster
        self._logs = logs

    def write(self, marker: EndTransactionMarker, partitions: Sequence[TopicPartition]) -> None:
        """Raises ApiException where a log takes none now (a full disk): it is to be tried again. Partitions that were deleted
        meanwhile are passed over."""
        for topic, index in partitions:
            log = self._logs.get(topic, index)
            state = self._cluster.image.partition(topic, index)
            if log is not None and state is not None:
                log.append_control(marker, state.leader_epoch)
