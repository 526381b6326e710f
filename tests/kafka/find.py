"""Which real Kafka the tests use: the one that is named, else one of our own, else the compose file's."""

from __future__ import annotations

import os

from tests.kafka.cluster import KafkaCluster
from tests.kafka.compose import ComposeKafka, ComposeUnavailableError
from tests.kafka.jars import JarsUnavailableError
from tests.kafka.kafka import Kafka


def find_kafka() -> Kafka:
    """A running Kafka to be stopped by the caller; RuntimeError that says what was tried when there is none."""
    named = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if named:
        return Kafka(named)
    try:
        return KafkaCluster()
    except (JarsUnavailableError, FileNotFoundError) as no_maven:
        try:
            return ComposeKafka()
        except ComposeUnavailableError as no_compose:
            raise RuntimeError(
                "no real Kafka for the tests:\n"
                "1. KAFKA_BOOTSTRAP_SERVERS is not set\n"
                f"2. Kafka from Maven artifacts: {no_maven}\n"
                f"3. Kafka from docker-compose.yml: {no_compose}\n"
                "Any one of the three is enough."
            ) from no_maven
