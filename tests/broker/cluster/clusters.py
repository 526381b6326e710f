"""Clusters whose brokers exist in name only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.cluster.cluster import Cluster
from spark_kafka_sink.broker.cluster.metadata_image import BrokerState


def broker(node_id: int) -> BrokerState:
    return BrokerState(node_id, {"PLAINTEXT": ("127.0.0.1", 9000 + node_id)})


def cluster(brokers: int = 1, data_dir: Path | None = None, **config: Any) -> Cluster:
    """With brokers 1 to `brokers`, which are up."""
    made = Cluster(BrokerConfig(data_dir=data_dir, **config))
    made.brokers_up(*map(broker, range(1, brokers + 1)))
    return made
