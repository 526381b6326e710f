"""Options `trace.header` and `trace.parent`: the record header `traceparent` of W3C Trace Context."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import SinkOption

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
