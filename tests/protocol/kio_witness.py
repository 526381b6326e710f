"""kio, whose classes are generated from Kafka's message definitions, as the other end of our codec."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import typing
import uuid
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.fields import Message, wire_fields
from spark_kafka_sink.protocol.wire_types import ZERO_UUID

EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)
MILLISECOND = datetime.timedelta(milliseconds=1)


def kio_write(api: AnyApi, version: int, kind: str, correlation_id: int, client_id: str | None, body: Message) -> bytes:
    """Header and body as kio writes them."""
    body_class = _body_class(api, version, kind)
    header_class = body_class.__header_schema__
    known = {"request_api_key": api.key, "request_api_version": version, "correlation_id": correlation_id, "client_id": client_id}
    header = header_class(**{field.name: known[field.name] for field in dataclasses.fields(header_class)})
    out = io.BytesIO()
    entity_writer(header_class)(out, header)
    entity_writer(body_class)(out, _to_kio(body_class, body))
    return out.getvalue()


def kio_read(api: AnyApi, version: int, kind: str, data: bytes) -> tuple[Any, dict[str, Any]]:
    """The header as kio's class, and the body as plain values (see plain); all bytes must be used."""
    body_class = _body_class(api, version, kind)
    header, header_size = entity_reader(body_class.__header_schema__)(data, 0)
    body, body_size = entity_reader(body_class)(data, header_size)
    assert header_size + body_size == len(data)
    return header, _plain_kio(body)


def plain(message: Message, version: int) -> dict[str, Any]:
    """A message of ours as plain values, without the fields that `version` lacks, to be compared with what kio read."""
    return {name: _plain_value(value, version) for name, value in _present(message, version)}


def _body_class(api: AnyApi, version: int, kind: str) -> Any:
    cls = api.request if kind == "request" else api.response
    return getattr(importlib.import_module(f"kio.schema.{api.name.lower()}.v{version}.{kind}"), cls.__name__)


def _present(message: Message, version: int) -> list[tuple[str, Any]]:
    return [(field.name, getattr(message, field.name)) for field in wire_fields(type(message)) if field.is_in(version)]


def _plain_value(value: Any, version: int) -> Any:
    match value:
        case Message():
            return plain(value, version)
        case tuple() if any(isinstance(item, bytes | memoryview) for item in value):
            return b"".join(value)
        case tuple():
            return tuple(_plain_value(item, version) for item in value)
        case _:
            return value


def _our_name(name: str, value: Any) -> str:
    """kio has times as datetime and timedelta and drops the unit from their names."""
    return name if name != "timeout" and not _is_time(name, value) else f"{name}_ms"


def _is_time(name: str, value: Any) -> bool:
    return isinstance(value, datetime.timedelta | datetime.datetime) or name == "log_append_time"


def _plain_kio(entity: Any) -> dict[str, Any]:
    values = ((field.name, getattr(entity, field.name)) for field in dataclasses.fields(entity))
    return {_our_name(name, value): _plain_kio_value(name, value) for name, value in values}


def _plain_kio_value(name: str, value: Any) -> Any:
    if name == "topic_id":
        return value or ZERO_UUID
    if name == "log_append_time":
        return -1 if value is None else (value - EPOCH) // MILLISECOND
    if name == "current_leader":
        # kio has no "not sent": it is the default.
        return None if value.leader_id == value.leader_epoch == -1 else _plain_kio(value)
    match value:
        case datetime.timedelta():
            return value // MILLISECOND
        case tuple():
            return tuple(_plain_kio_value("", item) for item in value)
        case _ if dataclasses.is_dataclass(value):
            return _plain_kio(value)
        case _:
            return value


def _to_kio(cls: Any, message: Message) -> Any:
    return cls(**{field.name: _kio_value(field, message) for field in dataclasses.fields(cls)})


def _kio_value(field: dataclasses.Field[Any], message: Message) -> Any:
    kafka_type = field.metadata.get("kafka_type")
    value = getattr(message, field.name, None)
    match kafka_type, value:
        case "timedelta_i32", _:
            return datetime.timedelta(milliseconds=getattr(message, f"{field.name}_ms"))
        case "datetime_i64", _:
            timestamp = getattr(message, f"{field.name}_ms")
            return None if timestamp == -1 else EPOCH + timestamp * MILLISECOND
        case "error_code", int():
            return ErrorCode(value)
        case "records", tuple():
            return b"".join(value)
        case "uuid", uuid.UUID():
            return value if value != ZERO_UUID else None
        case None, None:
            return (
                None
                if field.name == "topics"
                else field.default
                if field.default is not dataclasses.MISSING
                else _nested(field)()
            )
        case None, Message():
            return _to_kio(_nested(field), value)
        case None, tuple():
            return tuple(_to_kio(_nested(field), item) for item in value)
        case _:
            return value


def _nested(field: dataclasses.Field[Any]) -> Any:
    """The kio class inside `X`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    cls: Any = field.type
    while typing.get_args(cls):
        cls = typing.get_args(cls)[0]
    return cls
