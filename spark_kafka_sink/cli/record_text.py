"""The text of a record: what `topics tail` prints, with the schemas of keys and values."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

from spark_kafka_sink.cli.shared_options import pairs
from spark_kafka_sink.cli.topic_commands import escaped
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.installation import check_extra
from spark_kafka_sink.options.registry_options import URL, registry_config
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.registry.registry_client import RegistryClient
from spark_kafka_sink.verify.decoding import SchemaDecoder
from spark_kafka_sink.verify.json_values import JsonNumber
from spark_kafka_sink.verify.record_errors import UndecodableError, described
from spark_kafka_sink.verify.schema_ids import NoSchemaIdError, SchemaKey, found_schema, id_bytes, schema_key

_CUT_AT: Final = 200
_ID_BYTES: Final = 5


class RecordText:
    """Turns records into text. With a registry, keys and values that name a schema are decoded."""

    def __init__(self, *, whole: bool, decoders: Mapping[str, SchemaDecoder]) -> None:
        """whole: whether long values are not cut. decoders: those of key and value; empty: nothing is decoded."""
        self._whole = whole
        self._decoders = decoders

    @classmethod
    @contextmanager
    def of(cls, topic: str, url: str | None, settings: Sequence[str], *, whole: bool) -> Iterator[RecordText]:
        """Yields the text of the records that `tail` prints. Raises click.BadParameter for an option that is not valid.

        url: the registry whose schemas decode keys and values; None: they are not decoded. settings: more of its options.
        """
        if url is None:
            if settings:
                raise click.UsageError("--set has no effect without --schema-registry-url")
            yield cls(whole=whole, decoders={})
            return
        check_extra("confluent_kafka", "--schema-registry-url")
        try:
            registry = RegistryClient(registry_config({URL: url, **pairs("--set", settings)}))
        except OptionError as error:
            hint = "--schema-registry-url" if error.facts.get("option") == URL else "--set"
            raise click.BadParameter(error.message, param_hint=hint) from None
        with registry as client:
            parts = ("key", "value")
            decoders = {part: SchemaDecoder(topic, part, lambda key: found_schema(key, client)) for part in parts}
            yield cls(whole=whole, decoders=decoders)

    def line(self, partition: int, record: Record) -> str:
        """Returns `partition:offset  timestamp  key  value  headers`, without characters that would change a terminal's state."""
        parts = [f"{partition}:{record.offset}", _time(record.timestamp), self._part("key", record.key, record)]
        parts.append(self._part("value", record.value, record))
        if record.headers:
            headers = (f"{escaped(name)}={readable(value, whole=self._whole)}" for name, value in record.headers)
            parts.append(" ".join(headers))
        return "  ".join(parts)

    def _part(self, part: str, data: bytes | None, record: Record) -> str:
        schema = _named_schema(part, data, record)
        if schema is None or data is None:
            return readable(data, whole=self._whole)
        if part not in self._decoders:
            in_header = isinstance(schema, str)
            return f"schema {schema} {readable(data if in_header else data[_ID_BYTES:], whole=self._whole)}"
        try:
            text = self._decoded(part, data, record)
        except UndecodableError as error:
            return f"schema {schema} {readable(data, whole=self._whole)} (cannot be decoded: {escaped(str(error))})"
        return f"schema {schema} {escaped(text) if self._whole else _cut(escaped(text), len(data))}"

    def _decoded(self, part: str, data: bytes, record: Record, *, ascii_only: bool = False) -> str:
        """Returns the JSON of a value. Raises UndecodableError, also for one that is nested too deeply."""
        value = self._decoders[part](data, record.headers)
        try:
            return as_json(plain(value), ascii_only=ascii_only)
        except (ValueError, RecursionError) as error:
            raise UndecodableError(f"its value has no JSON: {described(error)}") from None

    def json(self, partition: int, record: Record) -> str:
        """Returns the whole record. Bytes that are not UTF-8 are `{"hex": "..."}`."""
        found: dict[str, Any] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
        decoded: dict[str, str] = {}
        for part, data in (("key", record.key), ("value", record.value)):
            found[part] = _json_bytes(data)
            schema = _named_schema(part, data, record)
            if schema is None or data is None:
                continue
            found[f"{part}_schema"] = schema
            if part not in self._decoders:
                continue
            try:
                decoded[part] = self._decoded(part, data, record, ascii_only=True)
            except UndecodableError as error:
                found[f"{part}_problem"] = str(error)
        found["headers"] = [[name, _json_bytes(value)] for name, value in record.headers]
        texts = {name: decoded.get(name) or as_json(value, ascii_only=True) for name, value in found.items()}
        return f"{{{', '.join(f'{as_json(name)}: {text}' for name, text in texts.items())}}}"


def _named_schema(part: str, data: bytes | None, record: Record) -> SchemaKey | None:
    """Returns the schema's id or guid if the bytes look like Confluent's format, whose ids begin at 1."""
    if data is None:
        return None
    try:
        named = id_bytes(part, data, record.headers)
        key = schema_key(named)
    except NoSchemaIdError:
        return None
    # Without a header, bytes that only look like a guid are common.
    return key if key and (isinstance(key, int) or named is not data) else None


def readable(data: bytes | None, *, whole: bool = False) -> str:
    """Returns text for UTF-8, `0x...` for other bytes, `null` for None and `""` for no bytes; cut after 200 characters."""
    if data is None:
        return "null"
    if not data:
        return '""'
    shown = data if whole else data[: 4 * _CUT_AT]
    try:
        # The cut may have gone through a character.
        text = escaped(shown.decode() if whole or len(shown) == len(data) else _cut_text(shown))
    except UnicodeDecodeError:
        text = f"0x{shown.hex()}"
    return text if whole else _cut(text, len(data), is_all=len(shown) == len(data))


def _cut(text: str, size: int, *, is_all: bool = True) -> str:
    return text if is_all and len(text) <= _CUT_AT else f"{text[:_CUT_AT]}... ({size:,} bytes)"


def _cut_text(data: bytes) -> str:
    for end in range(len(data), len(data) - 4, -1):
        try:
            return data[:end].decode()
        except UnicodeDecodeError:
            continue
    return data.decode()


def _time(timestamp: int) -> str:
    """Returns the time in UTC; the number itself if no calendar has it."""
    try:
        return (
            datetime.datetime.fromtimestamp(timestamp / 1000, datetime.UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):
        return str(timestamp)


def _json_bytes(data: bytes | None) -> object:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return {"hex": (data or b"").hex()}


# Decoded values as JSON


def plain(value: Any) -> Any:
    """Returns a decoded value as objects, lists and scalars of JSON.

    Times are texts in ISO 8601, decimals and UUIDs are texts, and so are NaN and infinity. Bytes are text if they are UTF-8, else
    hexadecimal. Numbers of JSON keep their digits.

    Raises:
        ValueError: a message of Protobuf has no JSON, such as a Timestamp after the year 9999.
    """
    if value is None or isinstance(value, bool | int | str | JsonNumber):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if hasattr(value, "DESCRIPTOR"):
        from google.protobuf.json_format import Error, MessageToDict

        try:
            return plain(MessageToDict(value, preserving_proto_field_name=True))
        except Error as error:
            raise ValueError(str(error)) from None
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return f"0x{value.hex()}"
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    return str(value)


def as_json(value: Any, *, ascii_only: bool = False) -> str:
    """Returns a value of `plain` as JSON. Python's encoder would make floats or texts of numbers with more digits."""
    if isinstance(value, JsonNumber):
        return str(value)
    if isinstance(value, dict):
        fields = (f"{_scalar_text(name, ascii_only)}: {as_json(one, ascii_only=ascii_only)}" for name, one in value.items())
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, list):
        return f"[{', '.join(as_json(one, ascii_only=ascii_only) for one in value)}]"
    return _scalar_text(value, ascii_only)


def _scalar_text(value: Any, ascii_only: bool) -> str:
    return json.dumps(value, ensure_ascii=ascii_only, allow_nan=False)
