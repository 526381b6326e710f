"""Every API that is declared here, in all versions of Kafka 4.1: what a broker serves, and what tests go through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from spark_kafka_sink.protocol.add_offsets_to_txn import ADD_OFFSETS_TO_TXN
from spark_kafka_sink.protocol.add_partitions_to_txn import ADD_PARTITIONS_TO_TXN
from spark_kafka_sink.protocol.alter_configs import ALTER_CONFIGS
from spark_kafka_sink.protocol.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.api_versions import API_VERSIONS
from spark_kafka_sink.protocol.create_partitions import CREATE_PARTITIONS
from spark_kafka_sink.protocol.create_topics import CREATE_TOPICS
from spark_kafka_sink.protocol.delete_groups import DELETE_GROUPS
from spark_kafka_sink.protocol.delete_records import DELETE_RECORDS
from spark_kafka_sink.protocol.delete_topics import DELETE_TOPICS
from spark_kafka_sink.protocol.describe_cluster import DESCRIBE_CLUSTER
from spark_kafka_sink.protocol.describe_configs import DESCRIBE_CONFIGS
from spark_kafka_sink.protocol.describe_groups import DESCRIBE_GROUPS
from spark_kafka_sink.protocol.describe_log_dirs import DESCRIBE_LOG_DIRS
from spark_kafka_sink.protocol.describe_producers import DESCRIBE_PRODUCERS
from spark_kafka_sink.protocol.describe_transactions import DESCRIBE_TRANSACTIONS
from spark_kafka_sink.protocol.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS
from spark_kafka_sink.protocol.end_txn import END_TXN
from spark_kafka_sink.protocol.fetch import FETCH
from spark_kafka_sink.protocol.find_coordinator import FIND_COORDINATOR
from spark_kafka_sink.protocol.heartbeat import HEARTBEAT
from spark_kafka_sink.protocol.incremental_alter_configs import INCREMENTAL_ALTER_CONFIGS
from spark_kafka_sink.protocol.init_producer_id import INIT_PRODUCER_ID
from spark_kafka_sink.protocol.join_group import JOIN_GROUP
from spark_kafka_sink.protocol.leave_group import LEAVE_GROUP
from spark_kafka_sink.protocol.list_groups import LIST_GROUPS
from spark_kafka_sink.protocol.list_offsets import LIST_OFFSETS
from spark_kafka_sink.protocol.list_transactions import LIST_TRANSACTIONS
from spark_kafka_sink.protocol.metadata import METADATA
from spark_kafka_sink.protocol.offset_commit import OFFSET_COMMIT
from spark_kafka_sink.protocol.offset_delete import OFFSET_DELETE
from spark_kafka_sink.protocol.offset_fetch import OFFSET_FETCH
from spark_kafka_sink.protocol.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from spark_kafka_sink.protocol.produce import PRODUCE
from spark_kafka_sink.protocol.sasl_authenticate import SASL_AUTHENTICATE
from spark_kafka_sink.protocol.sasl_handshake import SASL_HANDSHAKE
from spark_kafka_sink.protocol.sync_group import SYNC_GROUP
from spark_kafka_sink.protocol.txn_offset_commit import TXN_OFFSET_COMMIT

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
    )
}
"""By key."""
