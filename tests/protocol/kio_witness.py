"""kio, whose classes are generated from Kafka's message definitions, as the other end of our codec."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import typing
from typing import Any

from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.fields import RECORDS, UUID, ZERO_UUID, ArrayOf, Message, WireField, WireType, wire_fields

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
    entity_writer(body_class)(out, _to_kio(body_class, body, version))
    return out.getvalue()


def kio_read(api: AnyApi, version: int, kind: str, data: bytes) -> tuple[Any, Message]:
    """The header as kio's class, and the body as ours; all bytes must be used."""
    body_class = _body_class(api, version, kind)
    header, header_size = entity_reader(body_class.__header_schema__)(data, 0)
    body, body_size = entity_reader(body_class)(data, header_size)
    assert header_size + body_size == len(data)
    return header, _to_ours(api.request if kind == "request" else api.response, body, version)


def _body_class(api: AnyApi, version: int, kind: str) -> Any:
    cls = api.request if kind == "request" else api.response
    return getattr(importlib.import_module(f"kio.schema.{api.name.lower()}.v{version}.{kind}"), cls.__name__)


def _pairs(cls: type, kio_class: Any, version: int) -> list[tuple[WireField, dataclasses.Field[Any]]]:
    """Our fields with kio's. kio has times as datetime and timedelta and drops the unit from their names."""
    theirs = {field.name: field for field in dataclasses.fields(kio_class)}
    ours = {
        field.name if field.name in theirs else field.name.removesuffix("_ms"): field
        for field in wire_fields(cls)
        if field.is_in(version)
    }
    assert ours.keys() == theirs.keys()
    return [(field, theirs[name]) for name, field in ours.items()]


def _to_ours(cls: type, entity: Any, version: int) -> Any:
    pairs = _pairs(cls, type(entity), version)
    return cls(**{ours.name: _our_field(ours, getattr(entity, theirs.name), version) for ours, theirs in pairs})


def _our_field(field: WireField, value: Any, version: int) -> Any:
    if isinstance(field.wire.type, type) and field.default is None and value == type(value)():
        # kio has no "not sent": it is the default.
        return None
    if value is None and field.name == "log_append_time_ms":
        return -1
    return _our_value(field.wire.type, value, version)


def _our_value(wire_type: WireType, value: Any, version: int) -> Any:
    match value:
        case None:
            return ZERO_UUID if wire_type == UUID else None
        case datetime.timedelta():
            return value // MILLISECOND
        case datetime.datetime():
            return (value - EPOCH) // MILLISECOND
        case tuple() if isinstance(wire_type, ArrayOf):
            return tuple(_our_value(wire_type.element, item, version) for item in value)
        case bytes() if wire_type == RECORDS:
            return (value,)
        case _ if isinstance(wire_type, type):
            return _to_ours(wire_type, value, version)
        case _:
            return value


def _to_kio(kio_class: Any, message: Message, version: int) -> Any:
    pairs = _pairs(type(message), kio_class, version)
    return kio_class(**{theirs.name: _kio_field(theirs, getattr(message, ours.name), version) for ours, theirs in pairs})


def _kio_field(field: dataclasses.Field[Any], value: Any, version: int) -> Any:
    match field.metadata.get("kafka_type"), value:
        case "timedelta_i32" | "timedelta_i64", _:
            return datetime.timedelta(milliseconds=value)
        case "datetime_i64", _:
            return None if value == -1 else EPOCH + value * MILLISECOND
        case "error_code", _:
            return ErrorCode(value)
        case "records", tuple():
            return b"".join(value)
        case "uuid", _:
            return None if value == ZERO_UUID else value
        case None, None:
            return field.default if field.default is not dataclasses.MISSING else None
        case None, Message():
            return _to_kio(_nested(field), value, version)
        case None, tuple():
            return tuple(_to_kio(_nested(field), item, version) for item in value)
        case _:
            return value


def _nested(field: dataclasses.Field[Any]) -> Any:
    """The kio class inside `X`, `tuple[X, ...]` or `tuple[X, ...] | None`."""
    cls: Any = field.type
    while typing.get_args(cls):
        cls = typing.get_args(cls)[0]
    return cls
