"""Checks on the driver, before any task starts, that a broker is reachable and that the topic exists.

Tasks wait for both until max.block.ms has passed, and a cluster runs each task up to four times. Without this check a wrong port
is reported after minutes.
"""

from __future__ import annotations

import time

from spark_kafka_sink.client.backoff import ExponentialBackoff, ResponseWaiter
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.errors import DeadlineError, MetadataTimeoutError
from spark_kafka_sink.producer.producer_metadata import CREATE_IT, FATAL_TOPIC_ERRORS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode, error_facts
from spark_kafka_sink.protocol.metadata import METADATA, MetadataRequest, MetadataRequestTopic
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.topic_creation import create_missing_topic
from spark_kafka_sink.spark.unreachable import contact_limit_ms, unreachable


def check_reachable(options: SinkOptions) -> None:
    """Returns once a broker has answered, and the topic exists if the option `topic` names one.

    The options `topic.create.*` create a missing topic, and so do brokers with auto.create.topics.enable. A topic without leaders
    exists, and tasks wait for its leaders.

    Raises:
        MetadataTimeoutError: No broker answered in time, or the topic does not exist.
        AuthenticationError: A broker rejected the login.
        AuthorizationError: The client may not describe the topic.
    """
    if options.creation is not None:
        create_missing_topic(options)
        return
    config, topic = options.producer, options.topic
    limit_ms = contact_limit_ms(config)
    deadline = time.monotonic() + limit_ms / 1000
    with ClusterClient(config) as client:
        try:
            code = 0 if topic is None else _topic_code(client, topic, deadline)
            if topic is None:
                client.brokers(deadline)
        except DeadlineError as error:
            raise unreachable(options, error) from None
        if topic is None or not code:
            return
        name = error_facts(code).name
        if code in FATAL_TOPIC_ERRORS:
            text = ": ".join(filter(None, [f"topic {topic}", name, FATAL_TOPIC_ERRORS[code]]))
            raise client.rights.error(text, ApiKey.METADATA, code, topic, topic=topic)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        servers = ",".join(config.bootstrap_servers)
        raise MetadataTimeoutError(
            f"topic {topic}: the topic does not exist on {servers} ({name} for {limit_ms / 1000:g} s); {CREATE_IT}",
            topic=topic,
            error=name,
        )


def _topic_code(client: ClusterClient, topic: str, deadline: float) -> int:
    """Returns the error code of a topic's metadata once it is final or the deadline has passed; 0 if the topic exists."""
    request = MetadataRequest([MetadataRequestTopic(name=topic)])
    waiter = ResponseWaiter(deadline, ExponentialBackoff(client.config.retry_backoff_ms, client.config.retry_backoff_max_ms))
    code = 0
    while True:
        try:
            code = client.ask_any(METADATA, request, deadline).topics[0].error_code
        except DeadlineError:
            if not code:
                raise
            return code  # the last request had too little time
        if not code or code in FATAL_TOPIC_ERRORS or waiter.is_over:
            return code
        waiter.note(f"topic {topic}", error_facts(code).name)
        waiter.pause()
