"""The text of an error that leaves the driver: for collectors of lineage and spans, which many people may read. Pure.

The texts of errors hold more than that: what a serializer, partitioner or interceptor of the user raised, and values of rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.protocol.error_codes import ErrorCode

# The beginnings of messages, which this package writes itself. What follows them may be anything, so no fact is read there.
# Behind the names of a key or value only a number or one of the record's own columns may follow.
_NUMBER: Final = r"\d{1,10}(?!\d)"
_HEADS: Final = tuple(
    map(
        re.compile,
        (
            r"(?:dead-letter )?topic '?(?P<topic>[\w.-]{1,249})'?(?=[:,;]| \(| partition \d)"
            rf"(?:,? partition (?P<partition>{_NUMBER}))?"
            rf"(?:: (?P<part>key|value)(?=: ))?(?:: row (?P<row>{_NUMBER})(?: of [\d,]+)?(?=: ))?"
            r"(?:: column (?P<column>key|value|headers|timestamp|partition|topic|traceparent)\b)?",
            r"column '?(?P<column>[\w.-]{1,100})'?(?=: )",
            r"option '?(?P<option>[A-Za-z][\w.-]{0,99})'?(?=: | is )",
            r"(?:broker )?(?P<broker>[A-Za-z0-9][\w.-]{0,252}:\d{2,5}|\[[0-9a-f:]+\]:\d{2,5})(?=[: ])",
            rf"(?:commit of )?(?:micro-)?batch (?P<batch>{_NUMBER})(?: of (?P<query_id>(?:job-)?[0-9a-f-]{{32,36}}))?\b",
            rf"Spark partition (?P<spark_partition>{_NUMBER}): ",
        ),
    )
)
_ROW_AT_END: Final = re.compile(rf", in row (?P<row>{_NUMBER}) of the (?:task|data)$")
_CAUSE: Final = re.compile(r"[\d,]+ records? failed, [\d,]+ (?:was|were) acknowledged: \[(?P<cause>[A-Z_]{1,40})\] ")
_ERROR_NAME: Final = re.compile(r"\b[A-Z]{3,}(?:_[A-Z]+)+\b")
_QUERY_ID: Final = re.compile(r"(?:job-)?[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}")


def _is_number(value: object) -> bool:
    return type(value) is int


# The facts that an error may carry beside its text, and what each must be. Names of topics, columns and options are read from
# the text's beginning only, because an error that was made again from Spark's text has found them anywhere in it.
_FACTS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "row": _is_number,
    "query_id": lambda value: isinstance(value, str) and _QUERY_ID.fullmatch(value) is not None,
    "batch": _is_number,
    "failed": _is_number,
    "acked": _is_number,
    "bad_rows": _is_number,
    "rows": _is_number,
    "error_code": _is_number,
}


def exported(error: KafkaSinkError) -> str:
    """Returns what may leave the driver: the code, names and numbers that hold no data of a row, and the link to the docs.

    For example `[SERIALIZATION] topic events, part value, row 0; see https://...`.
    """
    facts = _facts_of_text(error.message.partition("\n")[0])
    facts |= {name: error.facts[name] for name, is_safe in _FACTS.items() if is_safe(error.facts.get(name))}
    shown = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
    return f"[{error.code}] {shown}; see {error.link}" if shown else f"[{error.code}] see {error.link}"


def _facts_of_text(message: str) -> dict[str, object]:
    cause = _CAUSE.match(message)
    rest = message[cause.end() :] if cause else message
    found: dict[str, object] = {"cause": cause["cause"]} if cause else {}
    for pattern in (*(head.match(rest) for head in _HEADS), _ROW_AT_END.search(rest)):
        found |= {name: value for name, value in (pattern.groupdict() if pattern else {}).items() if value is not None}
    name = next((name for name in _ERROR_NAME.findall(message) if name in ErrorCode.__members__), None)
    return found if name is None else found | {"error": name}
