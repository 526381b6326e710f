"""Validates single values with the library jsonschema, with the formats that columns are checked for.

Its errors name the place in the value and the keyword with its limit. They hold no data of the value: neither values, nor keys
that the schema does not name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.json_schema.json_patterns import is_known, is_supported, supported, text_has_format
from spark_kafka_sink.formats.json_schema.json_references import UsedSchema, Validator, pointer
from spark_kafka_sink.formats.json_schema.json_types import shown, with_article
from spark_kafka_sink.installation import check_extra

if TYPE_CHECKING:
    from jsonschema import FormatChecker
    from jsonschema.exceptions import ValidationError

MODULE: Final = "jsonschema"
USED_BY: Final = "format json-schema"

_NAMES: Final = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
# Keywords whose limit completes the sentence.
_PROBLEMS: Final[Mapping[str, str]] = {
    "minimum": "it is below {}",
    "maximum": "it is above {}",
    "exclusiveMinimum": "it is not above {}",
    "exclusiveMaximum": "it is not below {}",
    "multipleOf": "it is not a multiple of {}",
    "minLength": "it has fewer than {} characters",
    "maxLength": "it has more than {} characters",
    "minItems": "it has fewer than {} elements",
    "maxItems": "it has more than {} elements",
    "minProperties": "it has fewer than {} properties",
    "maxProperties": "it has more than {} properties",
    "pattern": "it does not match the pattern {}",
    "format": "it does not have the format {}",
    "enum": "it is not one of {}",
    "const": "it is not {}",
}


class SingleValues:
    """Validates values by one schema. Any thread may use it.

    Args:
        text: the schema, as JSON text.
        named: texts of those that it refers to, by the URI that `$ref` has.

    Raises:
        SchemaError: the schema has a format or a pattern that cannot be checked. Columns refuse it as well.
        InstallationError: jsonschema is missing.
    """

    def __init__(self, text: str, named: Mapping[str, str]) -> None:
        check_extra(MODULE, USED_BY)
        others = [(name, json.loads(one)) for name, one in named.items()]
        self._validator = Validator(json.loads(text), others, _format_checker())
        refused = [f"{name} at {place}" for place, name in _unsupported_formats(self._validator.used)]
        if refused:
            raise SchemaError(
                f"the JSON Schema has formats that are not supported: {', '.join(refused)}."
                f" Remove them; the formats {', '.join(supported())} and unknown ones are supported",
                formats=tuple(refused),
            )

        if self._validator.unsupported:
            lines = "; ".join(self._validator.unsupported)
            raise SchemaError(f"the JSON Schema is not supported: {lines}", patterns=tuple(self._validator.unsupported))

    def check(self, value: Any) -> None:
        """Raises SerializationError for a value that is not valid, and SchemaError for a `$ref` that leads to nothing."""
        from jsonschema.exceptions import best_match
        from referencing.exceptions import Unresolvable

        try:
            found = best_match(self._validator.errors(value))
        except Unresolvable as error:
            raise SchemaError(f"$ref {error.ref!r} of the JSON Schema leads to nothing") from None
        except RecursionError:
            raise SerializationError("the value and the JSON Schema are nested too deeply to compare them", path="") from None
        if found is None:
            return
        missing = _missing(found)
        path = _path(found, value) + (f".{missing}" if missing else "")
        path = path.lstrip(".")
        problem = "it is missing, and the schema requires it" if missing else _problem(found)
        raise SerializationError(
            f"{path or 'the value'}: {problem} (JSON Schema at #{pointer(found.absolute_schema_path)})", path=path
        )


def _format_checker() -> FormatChecker:
    from jsonschema import FormatChecker

    made = FormatChecker(())
    for name in supported():
        made.checks(name)(lambda value, name=name: not isinstance(value, str) or text_has_format(name, value))
    return made


def _unsupported_formats(schemas: Iterable[UsedSchema]) -> Iterator[tuple[str, str]]:
    """Yields the place and the name of each format that text may have and that cannot be checked."""
    for place, schema, _ in schemas:
        name = schema.get("format")
        if isinstance(name, str) and is_known(name) and not is_supported(name) and _may_be_text(schema.get("type", "any")):
            yield place, name


def _may_be_text(types: Any) -> bool:
    names = types if isinstance(types, list) else [types]
    return "string" in names or "any" in names


def _missing(error: ValidationError) -> str | None:
    """Returns the first property that an object lacks, if that is the error."""
    if error.validator != "required" or not isinstance(error.validator_value, list):
        return None
    return next((name for name in error.validator_value if name not in error.instance), None)


def _path(error: ValidationError, value: Any) -> str:
    """Returns the place in the value. A key that the schema does not name is data, so it has its position instead."""
    named = {name for keyword, name in pairwise(error.absolute_schema_path) if keyword == "properties"}
    path = ""
    for step in error.absolute_path:
        if isinstance(step, str) and step in named:
            path += f".{step}"
        else:
            path += f"[{step if isinstance(step, int) else list(value).index(step)}]"
        value = value[step]
    return path


def _problem(error: ValidationError) -> str:
    keyword, limit, instance = str(error.validator), error.validator_value, error.instance
    if error.validator is None:
        return "the schema allows no value"
    if keyword == "type":
        if instance is None:
            return "it is null, and the schema does not allow null"
        types = limit if isinstance(limit, list) else [limit]
        return f"it is {with_article(_NAMES[type(instance)])}, must be {' or '.join(map(shown, types))}"
    if keyword in ("additionalProperties", "unevaluatedProperties"):
        return "it has a property that the schema does not name"
    schema = error.schema
    if keyword in ("minimum", "maximum") and isinstance(schema, dict) and schema.get(f"exclusive{keyword.capitalize()}") is True:
        keyword = f"exclusive{keyword.capitalize()}"  # draft 4
    if keyword in _PROBLEMS:
        return _PROBLEMS[keyword].format(shown(limit))
    return f"it does not fit the keyword {keyword} {shown(limit)}"
