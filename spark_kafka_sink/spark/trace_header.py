"""The record header `traceparent` of W3C Trace Context, which links consumers' spans to the batch, or to each row's own trace."""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import OptionError, RecordError
from spark_kafka_sink.records.added_headers import with_header_column, without_headers
from spark_kafka_sink.records.arrow_arrays import array_of_numbers
from spark_kafka_sink.records.columns import FixedHeaders
from spark_kafka_sink.spark.sink_option import SinkOption

if TYPE_CHECKING:
    from spark_kafka_sink.spark.options import SinkOptions

TRACE_HEADER: Final = "trace.header"
TRACE_PARENT: Final = "trace.parent"
TRACEPARENT: Final = "traceparent"

# version-trace id-span id-flags, in lower case. A later version may have more after that. Ids of zeros and version ff are not
# valid.
_FORM: Final = r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$"
_NOT: Final = r"^(ff|..-0{32}|.{35}-0{16}-|00-.{52}.)"
NOT_VALID: Final = (
    "is not a valid traceparent of W3C Trace Context, such as 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
)
_SAMPLED: Final = "01"


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
    return re.fullmatch(_FORM, text) is not None and re.match(_NOT, text) is None


def with_batch_context(options: SinkOptions) -> SinkOptions:
    """Returns the options of one micro-batch or job. With `trace.header=batch` all of its records get the same new one."""
    trace = options.record.trace
    if trace.header is not TraceHeader.BATCH:
        return options
    trace_id, flags = secrets.token_hex(16), _SAMPLED
    if trace.parent:
        _, trace_id, _, flags = trace.parent.split("-")[:4]
    context = f"00-{trace_id}-{secrets.token_hex(8)}-{flags}"
    record = replace(
        options.record,
        headers=(*options.record.headers, (TRACEPARENT, context.encode())),
        trace=replace(trace, context=context),
    )
    return replace(options, record=record)


def with_current_span(options: SinkOptions) -> SinkOptions:
    """Returns options whose `trace.parent` is OpenTelemetry's current span, unless it is set, or there is none.

    It imports nothing: a program that has a span has imported OpenTelemetry.
    """
    trace, loaded = options.record.trace, sys.modules.get("opentelemetry.trace")
    if trace.parent or loaded is None:
        return options
    found: Any = loaded.get_current_span().get_span_context()
    if not found.is_valid:
        return options
    parent = f"00-{found.trace_id:032x}-{found.span_id:016x}-{int(found.trace_flags):02x}"
    return replace(options, record=replace(options.record, trace=replace(trace, parent=parent)))


# In tasks, by column


def traced(headers: pa.Array | None, traceparents: pa.Array | None, fixed: FixedHeaders) -> pa.Array | None:
    """Returns the headers of each row with its traceparent. A new one replaces an old one.

    Args:
        headers: As in RecordColumns.
        traceparents: The column `traceparent`; None: there is none.
        fixed: The headers of all rows, which the encoder adds.
    """
    if headers is not None and (traceparents is not None or any(name == TRACEPARENT for name, _ in fixed)):
        # As OpenTelemetry's instrumentation of Java's client does (KafkaHeadersSetter): consumers differ in which one they read.
        headers = _replaced(headers, None if traceparents is None else traceparents.is_valid())
    return headers if traceparents is None else with_header_column(headers, TRACEPARENT, traceparents)


def _replaced(headers: pa.Array, rows: pa.Array | None) -> pa.Array:
    """Removes the header from the rows that get a new one. rows: which; None: all."""
    without = without_headers(headers, (TRACEPARENT,))
    return without if rows is None or without is headers else pc.if_else(rows, without, headers)


def bad_traceparents(column: pa.Array | None) -> NDArray[np.intp]:
    """Returns the rows whose traceparent is not valid. Null is."""
    if column is None:
        return np.zeros(0, np.intp)
    wrong = pc.or_(pc.invert(pc.match_substring_regex(column, _FORM)), pc.match_substring_regex(column, _NOT))
    if not pc.any(wrong).as_py():
        return np.zeros(0, np.intp)
    return np.flatnonzero(pc.fill_null(wrong, False).to_numpy(zero_copy_only=False))


def check_traceparents(column: pa.Array | None, first_row: int) -> None:
    """Raises RecordError for the first row whose traceparent is not valid. first_row: the number of the first row in the task."""
    for row in bad_traceparents(column)[:1].tolist():
        where = f"the value in row {first_row + row} of the task"
        raise RecordError(f"column {TRACEPARENT}: {where} {NOT_VALID}", column=TRACEPARENT, row=first_row + row)


def without_bad(column: pa.Array | None) -> pa.Array | None:
    """Returns the column with null in place of what is not valid."""
    bad = bad_traceparents(column)
    if column is None or not len(bad):
        return column
    valid = np.ones(len(column), np.bool_)
    valid[bad] = False
    return pc.if_else(array_of_numbers(valid), column, pa.nulls(1, column.type)[0])
