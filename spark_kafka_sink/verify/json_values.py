"""JSON with exact numbers, and its validation by a JSON Schema. JSON that readers understand differently is an error."""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from decimal import Context, Decimal, localcontext
from typing import Any, Final

from spark_kafka_sink.formats.json_schema.json_single import Validator
from spark_kafka_sink.verify.record_errors import UndecodableError

_LONGEST_WHOLE: Final = 400
"""Maximum number of digits of a whole number that is written with a fraction or an exponent: as many as doubles have."""
_EXACT: Final = Context(prec=2 * _LONGEST_WHOLE)


class JsonNumber(Decimal):
    """Number with a fraction or an exponent, with all its digits."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def json_value(data: bytes) -> Any:
    """Returns parsed JSON.

    Raises:
        UndecodableError: it is not valid JSON in UTF-8. Not valid are NaN and infinity, a name that an object has twice, and
            half of a surrogate pair. Python's parser accepts these, and others refuse them or read something else.
    """
    return _strict(data, _DECODER)


def _strict(data: bytes, decoder: json.JSONDecoder) -> Any:
    try:
        text = data.decode("utf-8-sig")
        value = decoder.decode(text)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        raise UndecodableError("is not valid JSON: it has half of a surrogate pair") from None
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise UndecodableError(f"is not valid JSON: {str(error) or type(error).__name__}") from None
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON value")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise ValueError(f"an object has the name {twice!r} twice")
    return found


def _decoder(number: Callable[[str], Any]) -> json.JSONDecoder:
    """Returns a decoder for all records: `json.loads` would make one for each."""
    return json.JSONDecoder(parse_float=number, parse_constant=_refuse_constant, object_pairs_hook=_object)


_DECODER: Final = _decoder(JsonNumber)


def validated_json(text: str, named: Mapping[str, str]) -> Callable[[bytes], Any]:
    """Returns a function that parses JSON and checks it against a schema. named: the schemas that it refers to, by reference.

    The library jsonschema compares Python's numbers. Numbers of both sides are decimals here, because 0.3 is a multiple of 0.1
    and 0.30000000000000004 is not.
    """
    validator = Validator(_comparable(text), [(name, _comparable(one)) for name, one in named.items()])
    validator.check_schema()
    whole: list[str] = []
    decoder = _decoder(lambda text: _comparable_number(text, whole))

    def parsed(data: bytes) -> Any:
        whole.clear()
        value = _strict(data, decoder)
        with localcontext(_EXACT):
            error = next(validator.errors(value), None)
        if error is not None:
            path = error.json_path.removeprefix("$").lstrip(".")
            raise UndecodableError(f"{path}: {error.message}" if path else error.message)
        return json_value(data) if whole else value

    return parsed


def _comparable(text: str) -> Any:
    return json.loads(text, parse_float=lambda number: _comparable_number(number, []))


def _comparable_number(text: str, whole: list[str]) -> int | Decimal:
    """Returns an int for 5.0, because that is an integer to JSON Schema, and jsonschema knows no integer but Python's.

    Such a text is added to `whole`.
    """
    number = JsonNumber(text)
    if number.adjusted() < _LONGEST_WHOLE and number == number.to_integral_value():
        whole.append(text)
        return int(number)
    return number


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
