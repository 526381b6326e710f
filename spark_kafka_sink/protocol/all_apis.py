"""Every API declared in this package, in all versions of Kafka 4.1. The broker serves them, and tests cover them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.apis.cluster import (
    ALTER_CONFIGS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    DESCRIBE_CLUSTER,
    DESCRIBE_LOG_DIRS,
)
from spark_kafka_sink.protocol.apis.configs import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from spark_kafka_sink.protocol.apis.fetch import FETCH
from spark_kafka_sink.protocol.apis.find_coordinator import FIND_COORDINATOR
from spark_kafka_sink.protocol.apis.group_offsets import OFFSET_COMMIT, OFFSET_DELETE, OFFSET_FETCH
from spark_kafka_sink.protocol.apis.groups import (
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    SYNC_GROUP,
)
from spark_kafka_sink.protocol.apis.list_transactions import LIST_TRANSACTIONS
from spark_kafka_sink.protocol.apis.metadata import API_VERSIONS, METADATA
from spark_kafka_sink.protocol.apis.partition_offsets import LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from spark_kafka_sink.protocol.apis.produce import INIT_PRODUCER_ID, PRODUCE
from spark_kafka_sink.protocol.apis.sasl import (
    ALTER_USER_SCRAM_CREDENTIALS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from spark_kafka_sink.protocol.apis.telemetry import GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY
from spark_kafka_sink.protocol.apis.topics import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_RECORDS, DELETE_TOPICS
from spark_kafka_sink.protocol.apis.transactions import (
    ADD_OFFSETS_TO_TXN,
    ADD_PARTITIONS_TO_TXN,
    DESCRIBE_PRODUCERS,
    DESCRIBE_TRANSACTIONS,
    END_TXN,
    TXN_OFFSET_COMMIT,
)

ALL_APIS: Final[Mapping[int, AnyApi]] = {
    api.key: api
    for api in (
        PRODUCE,
        FETCH,
        LIST_OFFSETS,
        METADATA,
        OFFSET_COMMIT,
        OFFSET_FETCH,
        FIND_COORDINATOR,
        JOIN_GROUP,
        HEARTBEAT,
        LEAVE_GROUP,
        SYNC_GROUP,
        DESCRIBE_GROUPS,
        LIST_GROUPS,
        SASL_HANDSHAKE,
        API_VERSIONS,
        CREATE_TOPICS,
        DELETE_TOPICS,
        DELETE_RECORDS,
        INIT_PRODUCER_ID,
        OFFSET_FOR_LEADER_EPOCH,
        ADD_PARTITIONS_TO_TXN,
        ADD_OFFSETS_TO_TXN,
        END_TXN,
        TXN_OFFSET_COMMIT,
        DESCRIBE_ACLS,
        CREATE_ACLS,
        DELETE_ACLS,
        DESCRIBE_CONFIGS,
        ALTER_CONFIGS,
        SASL_AUTHENTICATE,
        CREATE_PARTITIONS,
        DELETE_GROUPS,
        INCREMENTAL_ALTER_CONFIGS,
        OFFSET_DELETE,
        DESCRIBE_LOG_DIRS,
        DESCRIBE_USER_SCRAM_CREDENTIALS,
        ALTER_USER_SCRAM_CREDENTIALS,
        DESCRIBE_CLUSTER,
        DESCRIBE_PRODUCERS,
        DESCRIBE_TRANSACTIONS,
        LIST_TRANSACTIONS,
        GET_TELEMETRY_SUBSCRIPTIONS,
        PUSH_TELEMETRY,
    )
}
"""The APIs by key."""
