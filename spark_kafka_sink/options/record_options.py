"""Options for records from plain columns: `headers`, `headers.NAME`, `key.columns`, `value.columns`, `tombstone.column`.

They choose columns. `schema.py` finds these in a DataFrame, and `columns.py` serializes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NoReturn

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import SinkOption
from spark_kafka_sink.options.producer_options import OPTIONS, TIMESTAMP_UNIT

TRACE_HEADER: Final = "trace.header"
TRACE_PARENT: Final = "trace.parent"
TRACEPARENT: Final = "traceparent"

# version-trace id-span id-flags, in lower case. A later version may have more after that. Ids of zeros and version ff are not
# valid.
FORM: Final = r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$"
RESERVED: Final = r"^(ff|..-0{32}|.{35}-0{16}-|00-.{52}.)"
NOT_VALID: Final = (
    "is not a valid traceparent of W3C Trace Context, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)


class TraceHeader(StrEnum):
    """The values of the option `trace.header`."""

    NONE = "none"
    BATCH = "batch"
    COLUMN = "column"


TRACE_OPTIONS: Final = (
    SinkOption(
        TRACE_HEADER,
        ", ".join(f"`{each}`" for each in TraceHeader),
        f"`{TraceHeader.NONE}`",
        "The header `traceparent` of W3C Trace Context. `batch`: all records of a micro-batch or job get the same one, which is"
        " that of its span: see [tracing](monitoring.md#tracing). `column`: the string column `traceparent` has that of each row;"
        " a row with null gets none, and one that is not valid is a [bad row](bad-rows.md). Either replaces a header"
        " `traceparent` of the column `headers`.",
        "Spark's sink has no such option.",
    ),
    SinkOption(
        TRACE_PARENT,
        "a W3C `traceparent`",
        "",
        "The span that a batch's span is a child of. `publish` takes OpenTelemetry's current span if this is not set.",
        "Spark's sink has no such option.",
    ),
)


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Settings of the header and of spans.

    header: what the header has. parent: the traceparent of the span above the batch's; empty: there is none. context: that of the
    batch's own span, once the driver has made it.
    """

    header: TraceHeader = TraceHeader.NONE
    parent: str = ""
    context: str = ""


NO_TRACE: Final = TraceOptions()


def trace_options(options: Mapping[str, object]) -> TraceOptions:
    """Returns these options among a sink's options, by lower-cased name. Raises `OptionError` for a value that is not valid."""
    found, parent = str(options.get(TRACE_HEADER, TraceHeader.NONE)).strip().lower(), options.get(TRACE_PARENT)
    if found not in list(TraceHeader):
        text = f"option {TRACE_HEADER}: must be one of {', '.join(TraceHeader)}"
        raise OptionError(text, option=TRACE_HEADER)
    if parent is not None and not is_traceparent(str(parent).strip()):
        raise OptionError(f"option {TRACE_PARENT}: {NOT_VALID}", option=TRACE_PARENT)
    return TraceOptions(TraceHeader(found), "" if parent is None else str(parent).strip())


def is_traceparent(text: str) -> bool:
    """Returns whether a text is a valid traceparent."""
    return re.fullmatch(FORM, text) is not None and re.match(RESERVED, text) is None


HEADERS = "headers"
HEADER_PREFIX = "headers."
KEY_COLUMNS = "key.columns"
VALUE_COLUMNS = "value.columns"
TOMBSTONE_COLUMN = "tombstone.column"

_NEW = "Spark's sink has no such option."

RECORD_OPTIONS: Sequence[SinkOption] = (
    SinkOption(
        f"{HEADER_PREFIX}NAME",
        "text",
        "",
        "A header that every record gets after those of the column `headers`, as UTF-8: `headers.source=billing`. Spark changes"
        " option names to lower case; for other names set `headers`. See [fixed headers](columns.md#fixed-headers).",
        _NEW,
    ),
    SinkOption(
        HEADERS,
        'a JSON object, such as `{"Trace-Id": "42"}`',
        "",
        "Headers that every record gets, in this order, with names in any case. A value is text, written as UTF-8, or null."
        " Python functions also accept a dict. The headers of `headers.NAME` follow, sorted by name.",
        _NEW,
    ),
    SinkOption(
        KEY_COLUMNS,
        "column names, separated by commas",
        "",
        "Columns that form the key, in place of the column `key`: a JSON object with a field for each column. With"
        " `kafka.key.serializer`, the serializer gets one column as it is, or a struct of several. See"
        " [columns](columns.md#records-from-plain-columns).",
        _NEW,
    ),
    SinkOption(
        VALUE_COLUMNS,
        "column names, separated by commas",
        "",
        "Columns that form the value, in place of the column `value`. The rules are those of `key.columns`.",
        _NEW,
    ),
    SinkOption(
        TOMBSTONE_COLUMN,
        "a column name",
        "",
        "A boolean column. Where it is true, the record's value is null: a tombstone, which deletes the key from a compacted"
        " topic. Null counts as false. It needs a key.",
        _NEW,
    ),
    SinkOption(
        "timestamp.unit",
        "`ms`, `s`, `us`, `ns`",
        "",
        f"{TIMESTAMP_UNIT} It applies to a bigint column `timestamp`. `Producer` has the same option.",
        "Spark's sink ignores the column `timestamp`.",
    ),
    *TRACE_OPTIONS,
)


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """Choice of columns for records whose columns are not named after the parts of a record.

    headers: headers that every record gets. key_columns, value_columns: columns that form the key and the value; empty: the
    columns `key` and `value`. tombstone_column: a boolean column that is true where the value is null. trace: where the header
    `traceparent` comes from. timestamp_unit: of a bigint column `timestamp`; None: ms, and times in another unit are bad rows.
    """

    headers: tuple[tuple[str, bytes | None], ...] = field(default=(), repr=False)
    key_columns: tuple[str, ...] = ()
    value_columns: tuple[str, ...] = ()
    tombstone_column: str | None = None
    trace: TraceOptions = NO_TRACE
    timestamp_unit: str | None = None

    def columns_of(self, part: str) -> tuple[str, ...]:
        """Returns the columns that form `part`, which is key or value."""
        return {"key": self.key_columns, "value": self.value_columns}.get(part, ())


NAMED_COLUMNS = RecordOptions()
"""Records from the columns `key`, `value` and so on, without fixed headers."""


def record_options(options: Mapping[str, object]) -> RecordOptions:
    """Returns these options among a sink's options. Raises `OptionError` for a value that is not valid.

    options: by lower-cased name.
    """
    tombstone = options.get(TOMBSTONE_COLUMN)
    headers, trace = _headers(options), trace_options(options)
    if trace.header is not TraceHeader.NONE and any(name == TRACEPARENT for name, _ in headers):
        text = f"option {TRACE_HEADER}: an option {HEADERS} sets the header {TRACEPARENT} too; remove one of them"
        raise OptionError(text, option=TRACE_HEADER)
    return RecordOptions(
        headers=headers,
        key_columns=_columns(KEY_COLUMNS, options),
        value_columns=_columns(VALUE_COLUMNS, options),
        tombstone_column=None if tombstone is None else _column(TOMBSTONE_COLUMN, tombstone),
        trace=trace,
        timestamp_unit=OPTIONS["timestamp.unit"].parse(options["timestamp.unit"]) if "timestamp.unit" in options else None,
    )


def check_header_names(names: Sequence[str]) -> None:
    """Raises `OptionError` for an option `headers.NAME` with an upper-case letter.

    Spark passes options to format("kafka_sink") in lower case. So the same options make the same records everywhere.
    """
    for name in names:
        header = name[len(HEADER_PREFIX) :]
        if name.lower().startswith(HEADER_PREFIX) and header != header.lower():
            example = json.dumps({header: "..."}, ensure_ascii=False)
            raise OptionError(
                f"option {name}: Spark changes option names to lower case; for a header name with upper-case letters set"
                f" {HEADERS}={example}",
                option=name,
            )


def _headers(options: Mapping[str, object]) -> tuple[tuple[str, bytes | None], ...]:
    """Returns those of `headers` in their order, then each `headers.NAME` by name: Spark does not keep the order of options."""
    found = [(name, _header_value(HEADERS, name, value)) for name, value in _pairs(options.get(HEADERS))]
    known = {name for name, _ in found}
    for option in sorted(name for name in options if name.startswith(HEADER_PREFIX)):
        name = option.removeprefix(HEADER_PREFIX)
        if not name:
            raise OptionError(f"option {option}: the header's name is missing after the dot", option=option)
        if name in known:
            raise OptionError(f"option {option}: the option {HEADERS} sets this header too; remove one of them", option=option)
        found.append((name, _header_value(option, name, options[option])))
    return tuple(found)


def _pairs(value: object) -> list[tuple[str, object]]:
    """Returns the pairs of the option `headers`: an object of JSON, or a mapping of Python. A name may be there twice in JSON."""
    if value is None:
        return []
    pairs = value
    if isinstance(value, str):
        try:
            pairs = json.loads(value, object_pairs_hook=_JsonObject)
        except ValueError:
            _refuse_headers()
    if not isinstance(pairs, Mapping | _JsonObject) or not all(isinstance(name, str) for name, _ in _items(pairs)):
        _refuse_headers()
    return _items(pairs)


class _JsonObject(list[tuple[str, Any]]):
    """The members of an object of JSON, in order."""


def _items(pairs: Mapping[str, object] | _JsonObject) -> list[tuple[str, object]]:
    return list(pairs.items()) if isinstance(pairs, Mapping) else pairs


def _refuse_headers() -> NoReturn:
    raise OptionError(
        'option headers: must be a JSON object of header names and texts, such as {"source": "billing"}', option=HEADERS
    )


def _header_value(option: str, name: str, value: object) -> bytes | None:
    """Returns the bytes of a header's value. A value never goes into a message, because it may be a secret."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, bool):
        value = str(value).lower()  # as Spark writes the values of options
    if not isinstance(value, str | int | float):
        kind = "an object" if isinstance(value, _JsonObject) else type(value).__name__
        problem = f"the value of header {name} is {kind}, must be text"
        raise OptionError(f"option {option}: {problem}", option=option)
    try:
        _ = name.encode()
        return str(value).encode()
    except UnicodeEncodeError:
        raise OptionError(f"option {option}: is not valid Unicode text", option=option) from None


def _columns(option: str, options: Mapping[str, object]) -> tuple[str, ...]:
    """Returns the names of columns: text with commas, or a sequence of names."""
    value = options.get(option)
    if value is None:
        return ()
    given = value.split(",") if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else [value]
    names = tuple(_column(option, name) for name in given)
    for index, name in enumerate(names):
        if name in names[:index]:
            raise OptionError(f"option {option}: names column {name} twice", option=option)
    if not names:
        raise OptionError(f"option {option}: must name at least one column", option=option)
    return names


def _column(option: str, name: object) -> str:
    if not isinstance(name, str) or not name.strip():
        raise OptionError(f"option {option}: {name!r} is not the name of a column", option=option)
    return name.strip()
