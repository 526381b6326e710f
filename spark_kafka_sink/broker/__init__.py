"""An embedded Kafka broker for development and tests, without Java. Use Kafka itself in production.

Import it with `from spark_kafka_sink.broker import EmbeddedBroker`. Names are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spark_kafka_sink.broker.acl import Acl, AclOperation, PatternType, Permission, ResourceType
    from spark_kafka_sink.broker.api_exception import ApiException
    from spark_kafka_sink.broker.broker_config import BrokerConfig
    from spark_kafka_sink.broker.certificates import CertificateAuthority, KeyAndCertificate
    from spark_kafka_sink.broker.client_metrics import ClientMetricsManager, PushedMetrics
    from spark_kafka_sink.broker.embedded_broker import EmbeddedBroker, StoredRecord
    from spark_kafka_sink.broker.faults.fault import Fault
    from spark_kafka_sink.broker.faults.fault_injection import FaultInjection, Where
    from spark_kafka_sink.broker.registry.embedded_registry import EmbeddedRegistry
    from spark_kafka_sink.broker.server_properties import config_from
    from spark_kafka_sink.protocol.api import ApiKey
    from spark_kafka_sink.protocol.error_codes import ErrorCode

__all__ = [
    "Acl",
    "AclOperation",
    "ApiException",
    "ApiKey",
    "BrokerConfig",
    "CertificateAuthority",
    "ClientMetricsManager",
    "EmbeddedBroker",
    "EmbeddedRegistry",
    "ErrorCode",
    "Fault",
    "FaultInjection",
    "KeyAndCertificate",
    "PatternType",
    "Permission",
    "PushedMetrics",
    "ResourceType",
    "StoredRecord",
    "Where",
    "config_from",
]

_HOME = {
    "Acl": "broker.acl",
    "AclOperation": "broker.acl",
    "CertificateAuthority": "broker.certificates",
    "ClientMetricsManager": "broker.client_metrics",
    "PushedMetrics": "broker.client_metrics",
    "KeyAndCertificate": "broker.certificates",
    "PatternType": "broker.acl",
    "Permission": "broker.acl",
    "ResourceType": "broker.acl",
    "ApiException": "broker.api_exception",
    "ApiKey": "protocol.api",
    "BrokerConfig": "broker.broker_config",
    "EmbeddedBroker": "broker.embedded_broker",
    "StoredRecord": "broker.embedded_broker",
    "EmbeddedRegistry": "broker.registry.embedded_registry",
    "ErrorCode": "protocol.error_codes",
    "Fault": "broker.faults.fault",
    "FaultInjection": "broker.faults.fault_injection",
    "Where": "broker.faults.fault_injection",
    "config_from": "broker.server_properties",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"spark_kafka_sink.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
