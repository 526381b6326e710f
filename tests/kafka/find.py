"""Choice of the real Kafka for the tests: the named one, otherwise a new cluster."""

from __future__ import annotations

import os

from tests.kafka.cluster import KafkaCluster
from tests.kafka.kafka import Kafka


def find_kafka() -> Kafka:
    """Returns a running Kafka, which the caller stops. KAFKA_BOOTSTRAP_SERVERS names one that is not from Maven."""
    named = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    return Kafka(named) if named else KafkaCluster()
