"""ApiVersions (18): the APIs and features of this broker, to anyone, also before a login."""

from __future__ import annotations

import re
from typing import Final

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.api_version_manager import ApiVersionManager
from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.handlers.handler import Handler
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.api_versions import ApiVersionsRequest
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import Message

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""Java's `ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`."""


def api_versions_handler(versions: ApiVersionManager) -> Handler:
    """The handler of a broker that serves these."""

    def handle_api_versions(_services: BrokerServices, request: Request) -> Message:
        if request.has_unsupported_version:
            return versions.unsupported()
        body = request.body
        assert isinstance(body, ApiVersionsRequest)
        if request.version >= 3:
            _note_software(body, request)
        return versions.response(request.version)

    return handle_api_versions


def _note_software(body: ApiVersionsRequest, request: Request) -> None:
    """KIP-511: who connects, for logs and metrics. Raises INVALID_REQUEST for what would not fit into their names."""
    if not (_SOFTWARE.fullmatch(body.client_software_name) and _SOFTWARE.fullmatch(body.client_software_version)):
        raise ApiException(ErrorCode.INVALID_REQUEST)
    request.session.client_software_name = body.client_software_name
    request.session.client_software_version = body.client_software_version
