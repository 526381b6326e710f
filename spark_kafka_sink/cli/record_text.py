"""The text of a record: what `topics tail` prints, with the schemas of keys and values."""

from __future__ import annotations

import datetime
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
from spark_kafka_sink.verify.decoding import SchemaDecoder, named_schema
from spark_kafka_sink.verify.json_values import as_json, plain
from spark_kafka_sink.verify.record_errors import UndecodableError, described
from spark_kafka_sink.verify.schema_ids import found_schema

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
        parts = [f"{partition}:{record.offset}", time_text(record.timestamp), self._part("key", record.key, record)]
        parts.append(self._part("value", record.value, record))
        if record.headers:
            headers = (f"{escaped(name)}={readable(value, whole=self._whole)}" for name, value in record.headers)
            parts.append(" ".join(headers))
        return "  ".join(parts)

    def _part(self, part: str, data: bytes | None, record: Record) -> str:
        schema = named_schema(part, data, record.headers)
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
            schema = named_schema(part, data, record.headers)
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


def time_text(timestamp: int) -> str:
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
