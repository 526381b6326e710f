"""Every request comes through here: to the handler of its API, and back as an answer whatever that one does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeAlias

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.api_version_manager import ApiVersionManager
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.add_offsets_to_txn import handle_add_offsets_to_txn
from spark_kafka_sink.broker.handlers.add_partitions_to_txn import handle_add_partitions_to_txn
from spark_kafka_sink.broker.handlers.alter_configs import handle_alter_configs
from spark_kafka_sink.broker.handlers.api_versions import api_versions_handler
from spark_kafka_sink.broker.handlers.create_partitions import handle_create_partitions
from spark_kafka_sink.broker.handlers.create_topics import handle_create_topics
from spark_kafka_sink.broker.handlers.delete_groups import handle_delete_groups
from spark_kafka_sink.broker.handlers.delete_records import handle_delete_records
from spark_kafka_sink.broker.handlers.delete_topics import handle_delete_topics
from spark_kafka_sink.broker.handlers.describe_cluster import handle_describe_cluster
from spark_kafka_sink.broker.handlers.describe_configs import handle_describe_configs
from spark_kafka_sink.broker.handlers.describe_groups import handle_describe_groups
from spark_kafka_sink.broker.handlers.describe_producers import handle_describe_producers
from spark_kafka_sink.broker.handlers.describe_transactions import handle_describe_transactions
from spark_kafka_sink.broker.handlers.end_txn import handle_end_txn
from spark_kafka_sink.broker.handlers.fetch import handle_fetch
from spark_kafka_sink.broker.handlers.find_coordinator import handle_find_coordinator
from spark_kafka_sink.broker.handlers.handler import Handler
from spark_kafka_sink.broker.handlers.heartbeat import handle_heartbeat
from spark_kafka_sink.broker.handlers.incremental_alter_configs import handle_incremental_alter_configs
from spark_kafka_sink.broker.handlers.init_producer_id import handle_init_producer_id
from spark_kafka_sink.broker.handlers.join_group import handle_join_group
from spark_kafka_sink.broker.handlers.leave_group import handle_leave_group
from spark_kafka_sink.broker.handlers.list_groups import handle_list_groups
from spark_kafka_sink.broker.handlers.list_offsets import handle_list_offsets
from spark_kafka_sink.broker.handlers.list_transactions import handle_list_transactions
from spark_kafka_sink.broker.handlers.metadata import handle_metadata
from spark_kafka_sink.broker.handlers.offset_commit import handle_offset_commit
from spark_kafka_sink.broker.handlers.offset_delete import handle_offset_delete
from spark_kafka_sink.broker.handlers.offset_fetch import handle_offset_fetch
from spark_kafka_sink.broker.handlers.offset_for_leader_epoch import handle_offset_for_leader_epoch
from spark_kafka_sink.broker.handlers.produce import handle_produce
from spark_kafka_sink.broker.handlers.sasl_authenticate import handle_sasl_authenticate
from spark_kafka_sink.broker.handlers.sasl_handshake import handle_sasl_handshake
from spark_kafka_sink.broker.handlers.sync_group import handle_sync_group
from spark_kafka_sink.broker.handlers.txn_offset_commit import handle_txn_offset_commit
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.sasl.login import is_admitted
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

HANDLERS: Final[Mapping[ApiKey, Handler]] = {
    ApiKey.PRODUCE: handle_produce,
    ApiKey.FETCH: handle_fetch,
    ApiKey.LIST_OFFSETS: handle_list_offsets,
    ApiKey.METADATA: handle_metadata,
    ApiKey.FIND_COORDINATOR: handle_find_coordinator,
    ApiKey.SASL_HANDSHAKE: handle_sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: handle_sasl_authenticate,
    ApiKey.CREATE_TOPICS: handle_create_topics,
    ApiKey.DELETE_TOPICS: handle_delete_topics,
    ApiKey.CREATE_PARTITIONS: handle_create_partitions,
    ApiKey.DESCRIBE_CONFIGS: handle_describe_configs,
    ApiKey.ALTER_CONFIGS: handle_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: handle_incremental_alter_configs,
    ApiKey.DESCRIBE_CLUSTER: handle_describe_cluster,
    ApiKey.DELETE_RECORDS: handle_delete_records,
    ApiKey.DESCRIBE_PRODUCERS: handle_describe_producers,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: handle_offset_for_leader_epoch,
    ApiKey.INIT_PRODUCER_ID: handle_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: handle_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: handle_add_offsets_to_txn,
    ApiKey.END_TXN: handle_end_txn,
    ApiKey.DESCRIBE_TRANSACTIONS: handle_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: handle_list_transactions,
    ApiKey.JOIN_GROUP: handle_join_group,
    ApiKey.SYNC_GROUP: handle_sync_group,
    ApiKey.HEARTBEAT: handle_heartbeat,
    ApiKey.LEAVE_GROUP: handle_leave_group,
    ApiKey.OFFSET_COMMIT: handle_offset_commit,
    ApiKey.OFFSET_FETCH: handle_offset_fetch,
    ApiKey.TXN_OFFSET_COMMIT: handle_txn_offset_commit,
    ApiKey.DESCRIBE_GROUPS: handle_describe_groups,
    ApiKey.LIST_GROUPS: handle_list_groups,
    ApiKey.DELETE_GROUPS: handle_delete_groups,
    ApiKey.OFFSET_DELETE: handle_offset_delete,
}
"""The handler of each API that is served; ApiVersions, which tells of all of them, is added by KafkaApis."""


Serve: TypeAlias = Callable[[Request], None]


class Faults(Protocol):
    """What tests let go wrong, asked by many threads."""

    def handle(self, request: Request, serve: Serve) -> None:
        """In the place of `serve(request)`, which raises nothing: to be called now, later, from another thread, or not at all
        where the request is answered from here. What becomes of its answer can be decided in `request.on_answer`."""
        ...


class KafkaApis:
    """Kafka's KafkaApis. Without state of its own: `handle` may be called by any number of threads."""

    def __init__(
        self, services: BrokerServices, *, handlers: Mapping[ApiKey, Handler] = HANDLERS, faults: Faults | None = None
    ) -> None:
        self._services = services
        self._faults = faults
        versions = ApiVersionManager({*handlers, ApiKey.API_VERSIONS}, services.config.release)
        self._handlers = {**handlers, ApiKey.API_VERSIONS: api_versions_handler(versions)}
        self.served: Mapping[int, AnyApi] = versions.served

    def handle(self, request: Request) -> None:
        """Raises nothing. A request without a handler, or before a login that it needs, closes its connection."""
        if self._faults is None:
            self._serve(request)
        else:
            self._faults.handle(request, self._serve)

    def _serve(self, request: Request) -> None:
        try:
            if not is_admitted(self._services, request):
                return
            body = self._handlers[request.api.key](self._services, request)
            if body is not None:
                request.answer(body)
        except ApiException as refused:
            _answer_error(request, refused.code, refused.message)
        except Exception:
            logger.exception("Unexpected error handling %s", request)
            _answer_error(request, ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _answer_error(request: Request, code: ErrorCode, message: str | None) -> None:
    # A handler that failed after it had answered: the answer stands.
    if not request.is_answered:
        request.answer_error(code, message)
