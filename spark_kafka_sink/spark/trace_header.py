"""The record header `traceparent` of W3C Trace Context, which links consumers' spans to the batch, or to each row's own trace."""

from __future__ import annotations

import secrets
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from spark_kafka_sink.errors import RecordError
from spark_kafka_sink.options.record_options import FORM, NOT_VALID, RESERVED, TRACEPARENT, TraceHeader
from spark_kafka_sink.records.arrow_arrays import array_of_numbers
from spark_kafka_sink.records.columns import FixedHeaders, with_header_column, without_headers
from spark_kafka_sink.spark.python_workers import row_name

if TYPE_CHECKING:
    from spark_kafka_sink.options.sink_options import SinkOptions

_SAMPLED: Final = "01"


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
        without = without_headers(headers, (TRACEPARENT,))
        if traceparents is None or without is headers:
            headers = without
        else:  # only from rows that get a new one
            headers = pc.if_else(traceparents.is_valid(), without, headers)
    return headers if traceparents is None else with_header_column(headers, TRACEPARENT, traceparents)


def bad_traceparents(column: pa.Array | None) -> NDArray[np.intp]:
    """Returns the rows whose traceparent is not valid. Null is."""
    if column is None:
        return np.zeros(0, np.intp)
    wrong = pc.or_(pc.invert(pc.match_substring_regex(column, FORM)), pc.match_substring_regex(column, RESERVED))
    if not pc.any(wrong).as_py():
        return np.zeros(0, np.intp)
    return np.flatnonzero(pc.fill_null(wrong, False).to_numpy(zero_copy_only=False))


def check_traceparents(column: pa.Array | None, first_row: int) -> None:
    """Raises RecordError for the first row whose traceparent is not valid. first_row: the number of the first row in the task."""
    for row in bad_traceparents(column)[:1].tolist():
        where = f"the value in {row_name(first_row + row)}"
        raise RecordError(f"column {TRACEPARENT}: {where} {NOT_VALID}", column=TRACEPARENT, row=first_row + row)


def without_bad(column: pa.Array | None) -> pa.Array | None:
    """Returns the column with null in place of what is not valid."""
    bad = bad_traceparents(column)
    if column is None or not len(bad):
        return column
    valid = np.ones(len(column), np.bool_)
    valid[bad] = False
    return pc.if_else(array_of_numbers(valid), column, pa.nulls(1, column.type)[0])
