"""Ends transactions in the partitions that took part: what WriteTxnMarkers does between the brokers of a real cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.cluster.metadata_image import GROUP_METADATA_TOPIC
from spark_kafka_sink.broker.log.batch import EndTransactionMarker
from spark_kafka_sink.broker.log.log_manager import LogManager

TopicPartition = tuple[str, int]
CompleteTransaction = Callable[[int, Collection[int], bool], None]
"""Producer id, partitions of `__consumer_offsets`, committed: `GroupCoordinator.complete_transaction`."""


class TransactionMarkers:
    """From any thread. Writing one twice does no harm: a log whose producer has no open transaction takes it all the same."""

    def __init__(self, cluster: Cluster, logs: LogManager, complete_offsets: CompleteTransaction) -> None:
        self._cluster = cluster
        self._logs = logs
        self._complete_offsets = complete_offsets

    def write(self, marker: EndTransactionMarker, partitions: Sequence[TopicPartition]) -> None:
        """Raises ApiException where a log takes none now (a full disk): it is to be tried again. Partitions that were deleted
        meanwhile are passed over."""
        for topic, index in partitions:
            log = self._logs.get(topic, index)
            state = self._cluster.image.partition(topic, index)
            if log is not None and state is not None:
                log.append_control(marker, state.leader_epoch)
                if topic == GROUP_METADATA_TOPIC:
                    self._complete_offsets(marker.producer_id, (index,), marker.committed)
