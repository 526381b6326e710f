"""What the handlers of one broker work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.timer import Timer


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """`node_id` is this broker's own; the others are shared by all brokers of the process.

    `wall_ms`: the time for timestamps, in ms since 1970.
    """

    node_id: int
    config: BrokerConfig
    cluster: Cluster
    timer: Timer
    wall_ms: Callable[[], int]
