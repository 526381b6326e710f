"""Reads the public names of the package, their methods, parameters and fields from the source, with griffe."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
PACKAGE = "spark_kafka_sink"

Documented = griffe.Class | griffe.Function
Member = griffe.Function | griffe.Attribute

# All names that the package exports, except its errors, by page.
SECTIONS: Mapping[str, Sequence[str]] = {
    "api-sink.md": (
        "register",
        "publish",
        "foreach_batch",
        "partition_writer",
        "DeliveryMetrics",
        "explain",
        "Explanation",
        "check",
        "CheckReport",
        "CheckLine",
        "tail",
    ),
    "api-reports.md": (
        "DeliveryReport",
        "PartitionReport",
        "PartitionReports",
        "PublishReport",
        "TaskReport",
        "QueryHistory",
        "BatchReport",
        "RunningTasks",
    ),
    "api-exporters.md": (
        "serve_prometheus",
        "PrometheusServer",
        "DriverCollector",
        "export_opentelemetry",
        "emit_lineage",
        "LineageEmitter",
        "trace_writes",
        "WriteTracer",
    ),
    "api-producer.md": (
        "Producer",
        "SendScope",
        "RecordColumns",
        "BadRows",
        "RecordFuture",
        "RecordMetadata",
        "PartitionInfo",
        "Node",
        "ConsumerGroupMetadata",
        "OffsetAndMetadata",
        "producer_config",
        "ProducerConfig",
    ),
    "api-plugins.md": (
        "Serializer",
        "AvroSerializer",
        "JsonSchemaSerializer",
        "ProtobufSerializer",
        "Partitioner",
        "Cluster",
        "ProducerInterceptor",
        "ProducerRecord",
        "ColumnsMetadata",
    ),
}
TITLES: Mapping[str, str] = {
    "api-sink.md": "API of the sink",
    "api-reports.md": "API of reports",
    "api-exporters.md": "API of exporters",
    "api-producer.md": "API of the producer",
    "api-plugins.md": "API of plug-ins",
    "api-broker.md": "API of the embedded broker",
}
# All names that `spark_kafka_sink.broker` exports, except enumerations of Kafka's numbers.
BROKER: Sequence[str] = (
    "EmbeddedBroker",
    "StoredRecord",
    "EmbeddedRegistry",
    "FaultInjection",
    "Where",
    "Fault",
    "BrokerConfig",
    "config_from",
    "CertificateAuthority",
    "ClientMetricsManager",
    "PushedMetrics",
    "KeyAndCertificate",
    "Acl",
    "ApiException",
)
SHARED: Sequence[str] = ("Tabular",)
"""Base classes whose members are shown with each class, because they have no entry of their own."""
# Members that other parts of the package, or its own tests, use and programs do not.
INSIDE: Mapping[str, Sequence[str]] = {
    "Acl": ("applies_to",),
    "ClientMetricsManager": ("push", "subscription"),
    "Cluster": ("controller_id", "leader_epoch", "topic_error", "topic_id", "topics"),
    "EmbeddedBroker": ("address", "cluster", "direct_servers", "server"),
    "Fault": ("forget", "hit", "undo"),
    "FaultInjection": ("attach", "delay_markers", "detach", "of_broker", "seen", "storage"),
    "BatchReport": ("from_bytes", "to_bytes"),
    "BrokerConfig": ("has_authorizer", "initial_acls", "uses_sasl", "uses_tls"),
    "DeliveryMetrics": (
        "batch_aborted",
        "batch_committed",
        "committing_s",
        "feed",
        "live_tasks",
        "query_name",
        "reason",
        "totals",
        "transaction_ages",
        "writes",
    ),
    "DeliveryReport": ("add", "bad_rows_text", "errors_text", "slowed_down", "summed"),
    "PartitionReports": (
        *("add", "columns", "count", "from_bytes", "largest_topics", "summed", "summed_topics", "to_bytes", "with_sum_of_others"),
    ),
    "Producer": ("close_when_idle", "transaction"),
    "QueryHistory": ("column", "ends_s", "last_cells", "title"),
    "RecordColumns": ("lengths", "is_like"),
    "RecordFuture": ("complete", "fail", "pending"),
    "SendScope": (
        *("discard", "discarded", "is_transaction", "progress", "raise_error", "request_topics", "rows_per_append", "tally"),
    ),
}
# Programs get these from other calls, and do not construct them.
GIVEN = (
    "BadRows",
    "BatchReport",
    "CheckLine",
    "CheckReport",
    "Cluster",
    "ColumnsMetadata",
    "DeliveryMetrics",
    "DeliveryReport",
    "Explanation",
    "Fault",
    "FaultInjection",
    "LineageEmitter",
    "Node",
    "PartitionInfo",
    "PartitionReport",
    "PartitionReports",
    "PrometheusServer",
    "PublishReport",
    "PushedMetrics",
    "QueryHistory",
    "RecordFuture",
    "RecordMetadata",
    "RunningTasks",
    "SendScope",
    "TaskReport",
    "WriteTracer",
)
# The pages of options and docs/broker.md describe their fields.
FIELDS_ARE_OPTIONS = ("BrokerConfig", "ProducerConfig")


@cache
def package() -> griffe.Module:
    loaded = griffe.load(PACKAGE, search_paths=[ROOT])
    assert isinstance(loaded, griffe.Module)
    return loaded


def exported(name: str) -> Documented:
    """Returns the class or function that the package, or its broker, exports under a name."""
    alias = package()["broker"][name] if name in BROKER else package()[name]
    assert isinstance(alias, griffe.Alias)
    found = alias.final_target
    assert isinstance(found, griffe.Class | griffe.Function)
    return found


def errors() -> list[griffe.Class]:
    """Returns every class of error, each after its base class."""
    return [found for found in package()["errors"].members.values() if isinstance(found, griffe.Class)]


def methods(owner: griffe.Class) -> list[Member]:
    """Returns the public methods and properties of a class."""
    return [member for member in _members(owner) if member.is_function or "property" in member.labels]


def fields(owner: griffe.Class) -> list[Member]:
    """Returns the plain attributes of a class. Its docstring describes them."""
    if owner.name in FIELDS_ARE_OPTIONS:
        return []
    return [member for member in _members(owner) if not member.is_function and "property" not in member.labels]


def parameters(described: Documented) -> list[griffe.Parameter]:
    """Returns the parameters of a function, or of the constructor of a class."""
    if isinstance(described, griffe.Function):
        return [parameter for parameter in described.parameters if parameter.name != "self"]
    if described.name in (*GIVEN, *FIELDS_ARE_OPTIONS):
        return []
    made = described.all_members.get("__init__")  # of a base class, too
    if isinstance(made, griffe.Alias):
        made = made.final_target
    if isinstance(made, griffe.Function):
        return parameters(made)
    if "NamedTuple" not in map(str, described.bases):
        return []
    return [
        griffe.Parameter(field.name, annotation=field.annotation, default=field.value)
        for field in fields(described)
        if isinstance(field, griffe.Attribute)
    ]


def docstring(described: griffe.Object) -> str:
    return "" if described.docstring is None else described.docstring.value


def undocumented(name: str, described: Documented) -> list[str]:
    """Returns the names that no docstring mentions: the object itself, its methods, their parameters, and its fields."""
    text = docstring(described)
    missing = [] if text else [name]
    told = [parameter.name for parameter in parameters(described)]
    if isinstance(described, griffe.Class):
        told += [field.name for field in fields(described)]
        for method in methods(described):
            missing += _undocumented_method(f"{name}.{method.name}", method, text)
    return missing + [f"{name}({word})" for word in dict.fromkeys(told) if not _says(text, word)]


def _undocumented_method(name: str, method: Member, class_text: str) -> list[str]:
    text = docstring(method)
    taken = parameters(method) if isinstance(method, griffe.Function) else []
    unsaid = [f"{name}({taken.name})" for taken in taken if not _says(f"{text} {class_text}", taken.name)]
    return ([] if text else [name]) + unsaid


def _says(text: str, word: str) -> bool:
    return re.search(rf"\b{re.escape(word)}\b", text) is not None


def _members(owner: griffe.Class) -> list[Member]:
    hidden = INSIDE.get(owner.name, ())
    shared = {name: member for base in owner.mro() if base.name in SHARED for name, member in base.members.items()}
    every = {**owner.members, **shared, **owner.members}
    shown = (member for name, member in every.items() if not name.startswith("_") and name not in hidden)
    return [member for member in shown if isinstance(member, griffe.Function | griffe.Attribute)]
