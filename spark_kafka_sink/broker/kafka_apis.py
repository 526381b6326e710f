"""The table from API to handler. Every request passes through here and is answered even if its handler fails."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.faults.effects import Serve
from spark_kafka_sink.broker.handlers import configs, fetch, groups, metadata, offsets, produce, security, topics, transactions
from spark_kafka_sink.broker.handlers.common import Handler
from spark_kafka_sink.broker.kafka_release import ApiVersionManager
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.sasl_server import is_admitted
from spark_kafka_sink.protocol.api import AnyApi, ApiKey
from spark_kafka_sink.protocol.error_codes import ErrorCode

logger = logging.getLogger(__name__)

HANDLERS: Final[Mapping[ApiKey, Handler]] = {
    ApiKey.PRODUCE: produce.handle_produce,
    ApiKey.FETCH: fetch.handle_fetch,
    ApiKey.LIST_OFFSETS: fetch.handle_list_offsets,
    ApiKey.METADATA: metadata.handle_metadata,
    ApiKey.FIND_COORDINATOR: metadata.handle_find_coordinator,
    ApiKey.SASL_HANDSHAKE: security.handle_sasl_handshake,
    ApiKey.SASL_AUTHENTICATE: security.handle_sasl_authenticate,
    ApiKey.CREATE_TOPICS: topics.handle_create_topics,
    ApiKey.DELETE_TOPICS: topics.handle_delete_topics,
    ApiKey.CREATE_PARTITIONS: topics.handle_create_partitions,
    ApiKey.DESCRIBE_ACLS: security.handle_describe_acls,
    ApiKey.CREATE_ACLS: security.handle_create_acls,
    ApiKey.DELETE_ACLS: security.handle_delete_acls,
    ApiKey.DESCRIBE_CONFIGS: configs.handle_describe_configs,
    ApiKey.ALTER_CONFIGS: configs.handle_alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: configs.handle_incremental_alter_configs,
    ApiKey.DESCRIBE_CLUSTER: metadata.handle_describe_cluster,
    ApiKey.DELETE_RECORDS: topics.handle_delete_records,
    ApiKey.DESCRIBE_LOG_DIRS: topics.handle_describe_log_dirs,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: security.handle_describe_user_scram_credentials,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: security.handle_alter_user_scram_credentials,
    ApiKey.DESCRIBE_PRODUCERS: transactions.handle_describe_producers,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: fetch.handle_offset_for_leader_epoch,
    ApiKey.INIT_PRODUCER_ID: transactions.handle_init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: transactions.handle_add_partitions_to_txn,
    ApiKey.ADD_OFFSETS_TO_TXN: transactions.handle_add_offsets_to_txn,
    ApiKey.END_TXN: transactions.handle_end_txn,
    ApiKey.DESCRIBE_TRANSACTIONS: transactions.handle_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: transactions.handle_list_transactions,
    ApiKey.JOIN_GROUP: groups.handle_join_group,
    ApiKey.SYNC_GROUP: groups.handle_sync_group,
    ApiKey.HEARTBEAT: groups.handle_heartbeat,
    ApiKey.LEAVE_GROUP: groups.handle_leave_group,
    ApiKey.OFFSET_COMMIT: offsets.handle_offset_commit,
    ApiKey.OFFSET_FETCH: offsets.handle_offset_fetch,
    ApiKey.TXN_OFFSET_COMMIT: offsets.handle_txn_offset_commit,
    ApiKey.DESCRIBE_GROUPS: groups.handle_describe_groups,
    ApiKey.LIST_GROUPS: groups.handle_list_groups,
    ApiKey.DELETE_GROUPS: groups.handle_delete_groups,
    ApiKey.OFFSET_DELETE: offsets.handle_offset_delete,
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: metadata.handle_get_telemetry_subscriptions,
    ApiKey.PUSH_TELEMETRY: metadata.handle_push_telemetry,
}
"""The handler of each API. KafkaApis adds ApiVersions, which lists all of them."""

_CLIENT_METRICS: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})


Faults: TypeAlias = Callable[[Request, Serve], None]
"""The hook for fault injection. Many threads call it in place of `serve(request)`, which never raises.

It may serve the request now, later, from another thread, or not at all and answer itself. `request.on_response` decides what is
sent.
"""


class KafkaApis:
    """Dispatches requests to handlers (Kafka's KafkaApis). It has no state, so any number of threads may call `handle`."""

    def __init__(
        self, services: BrokerServices, *, handlers: Mapping[ApiKey, Handler] = HANDLERS, faults: Faults | None = None
    ) -> None:
        self._services = services
        self._faults = faults
        # As in Kafka, the APIs of client metrics exist only with a receiver (ApiVersionsResponse.filterApis).
        hidden = _CLIENT_METRICS if services.config.client_metrics is None else frozenset()
        versions = ApiVersionManager({*handlers, ApiKey.API_VERSIONS} - hidden, services.config.release)
        self._handlers = {**handlers, ApiKey.API_VERSIONS: metadata.api_versions_handler(versions)}
        self.served: Mapping[int, AnyApi] = versions.served

    def handle(self, request: Request) -> None:
        """Serves a request and never raises. A request that needs a login but arrives before it closes its connection."""
        if self._faults is None:
            self._serve(request)
        else:
            self._faults(request, self._serve)

    def _serve(self, request: Request) -> None:
        try:
            if not is_admitted(self._services, request):
                return
            body = self._handlers[request.api.key](self._services, request)
            if body is not None:
                request.answer(body)
        except ApiException as refused:
            request.answer_error(refused.code, refused.message)
        except Exception:
            logger.exception("Unexpected error handling %s", request)
            request.answer_error(ErrorCode.UNKNOWN_SERVER_ERROR)
