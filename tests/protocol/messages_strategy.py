"""Any message of any API and version that we speak, out of the fields' own declarations."""

from __future__ import annotations

import functools
import struct
from typing import Any

from hypothesis import strategies as st

from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.fields import (
    BOOLEAN,
    ArrayOf,
    BytesType,
    FixedType,
    Message,
    RecordsType,
    StringType,
    UuidType,
    WireField,
    WireType,
    wire_fields,
)

SPOKEN = [
    (api, version, kind)
    for api in ALL_APIS.values()
    for version in range(api.min_version, api.max_version + 1)
    for kind in ("request", "response")
]
"""Every API, version and direction."""

ERROR_CODES = [int(code) for code in ErrorCode if code is not ErrorCode.UNSUPPORTED_VERSION]
"""kio knows no others. The one left out makes an ApiVersions response one of v0 (test_messages.py has it)."""

WHOLE_SECONDS_MS = st.integers(0, 4_000_000_000).map(lambda seconds: seconds * 1000)
"""kio takes times through a float of seconds, which only whole ones survive."""

_KIO_CAN_CARRY = {
    "error_code": st.sampled_from(ERROR_CODES),
    "partition_error_code": st.sampled_from(ERROR_CODES),
    "log_append_time_ms": st.just(-1) | WHOLE_SECONDS_MS,
    "retention_time_ms": WHOLE_SECONDS_MS,
    "session_lifetime_ms": WHOLE_SECONDS_MS,
    "transaction_start_time_ms": WHOLE_SECONDS_MS,
}


@functools.cache
def bodies(api: AnyApi, version: int, kind: str) -> st.SearchStrategy[Message]:
    return messages(api.request if kind == "request" else api.response, version)


def messages(cls: type, version: int) -> st.SearchStrategy[Any]:
    """Messages with any value in each field that the version has, and the default in the others."""
    present = [field for field in wire_fields(cls) if field.is_in(version)]
    return st.builds(cls, **{field.name: _field(field, version) for field in present})


def _field(field: WireField, version: int) -> st.SearchStrategy[Any]:
    if field.name in _KIO_CAN_CARRY:
        return _KIO_CAN_CARRY[field.name]
    values = _values(field.wire.type, version)
    if version >= field.wire.nullable_since:
        return st.none() | values
    if field.wire.tag is not None and field.default is None:
        # None: not sent. kio takes a struct that has only defaults for one that is not sent.
        return st.none() | values.filter(lambda value: value != type(value)())
    return values


def _values(wire_type: WireType, version: int) -> st.SearchStrategy[Any]:
    match wire_type:
        case FixedType(code=code):
            return st.booleans() if wire_type == BOOLEAN else _integers(struct.calcsize(code))
        case StringType():
            # Lengths around 127 are where a compact length grows to two bytes.
            return st.text(max_size=8) | st.integers(120, 135).map(lambda size: "x" * size)
        case UuidType():
            return st.uuids(allow_nil=True)
        case BytesType():
            return st.binary(max_size=8)
        case RecordsType():
            return st.binary(min_size=1, max_size=300).map(lambda data: (data,))
        case ArrayOf(element=element):
            return st.lists(_values(element, version), max_size=3).map(tuple)
        case _:
            return messages(wire_type, version)


def _integers(size: int) -> st.SearchStrategy[int]:
    limit = 1 << (8 * size - 1)
    return st.integers(-limit, limit - 1)
