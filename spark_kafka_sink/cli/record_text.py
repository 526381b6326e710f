"""The text of a record: what `topics tail` prints, with the schemas of keys and values."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import click

from spark_kafka_sink.cli.shared_options import pairs
from spark_kafka_sink.cli.topic_commands import escaped
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.registry_options import URL, registry_config
from spark_kafka_sink.records.record_reader import Record
from spark_kafka_sink.verify.decoding import Decoders, as_text, decoded, decoders
from spark_kafka_sink.verify.json_values import as_json
from spark_kafka_sink.verify.schema_ids import ID_BYTES

_CUT_AT: Final = 200


class RecordText:
    """Turns records into text. With a registry, keys and values that name a schema are decoded."""

    def __init__(self, *, whole: bool, decoders: Decoders) -> None:
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
        with ExitStack() as opened:
            try:
                config = registry_config({URL: url, **pairs("--set", settings)})
                found = opened.enter_context(decoders(topic, config, "--schema-registry-url"))
            except OptionError as error:
                hint = "--schema-registry-url" if error.facts.get("option") == URL else "--set"
                raise click.BadParameter(error.message, param_hint=hint) from None
            yield cls(whole=whole, decoders=found)

    def line(self, partition: int, record: Record) -> str:
        """Returns `partition:offset  timestamp  key  value  headers`, without characters that would change a terminal's state."""
        parts = [f"{partition}:{record.offset}", time_text(record.timestamp), self._part("key", record.key, record)]
        parts.append(self._part("value", record.value, record))
        if record.headers:
            headers = (f"{escaped(name)}={readable(value, whole=self._whole)}" for name, value in record.headers)
            parts.append(" ".join(headers))
        return "  ".join(parts)

    def _part(self, part: str, data: bytes | None, record: Record) -> str:
        found = decoded(part, data, record.headers, self._decoders)
        if found.schema is None or data is None:
            return readable(data, whole=self._whole)
        if found.json is not None:
            text = escaped(found.json)
            return f"schema {found.schema} {text if self._whole else _cut(text, len(data))}"
        if found.problem:
            return f"schema {found.schema} {readable(data, whole=self._whole)} (cannot be decoded: {escaped(found.problem)})"
        is_in_header = isinstance(found.schema, str)
        return f"schema {found.schema} {readable(data if is_in_header else data[ID_BYTES:], whole=self._whole)}"

    def json(self, partition: int, record: Record) -> str:
        """Returns the whole record. Bytes that are not UTF-8 are `{"hex": "..."}`."""
        found: dict[str, Any] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
        jsons: dict[str, str] = {}
        for part, data in (("key", record.key), ("value", record.value)):
            found[part] = _json_bytes(data)
            read = decoded(part, data, record.headers, self._decoders, ascii_only=True)
            if read.schema is not None:
                found[f"{part}_schema"] = read.schema
            if read.json is not None:
                jsons[part] = read.json
            if read.problem:
                found[f"{part}_problem"] = read.problem
        found["headers"] = [[name, _json_bytes(value)] for name, value in record.headers]
        texts = {name: jsons.get(name) or as_json(value, ascii_only=True) for name, value in found.items()}
        return f"{{{', '.join(f'{as_json(name)}: {text}' for name, text in texts.items())}}}"


def readable(data: bytes | None, *, whole: bool = False) -> str:
    """Returns bytes `as_text`, `null` for None and `""` for no bytes; cut after 200 characters."""
    if data is None:
        return "null"
    if not data:
        return '""'
    shown = data if whole else data[: 4 * _CUT_AT]
    is_all = len(shown) == len(data)
    text = escaped(as_text(shown, is_cut=not is_all))
    return text if whole else _cut(text, len(data), is_all=is_all)


def _cut(text: str, size: int, *, is_all: bool = True) -> str:
    return text if is_all and len(text) <= _CUT_AT else f"{text[:_CUT_AT]}... ({size:,} bytes)"


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
