"""Validates single values with the library jsonschema, with the formats that columns are checked for.

Its errors name the place in the value and the keyword with its limit. They hold no data of the value: neither values, nor keys
that the schema does not name.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.errors import SchemaError, SerializationError
from spark_kafka_sink.formats.json_schema.json_document import has_type, official, pointer, shown, with_article
from spark_kafka_sink.formats.json_schema.json_values import (
    CHECKED_FORMATS,
    KNOWN_FORMATS,
    PatternError,
    text_has_format,
    translated,
)
from spark_kafka_sink.installation import check_extra

if TYPE_CHECKING:
    from jsonschema import FormatChecker
    from jsonschema.exceptions import ValidationError
    from referencing import Registry

# Keywords by the form of what they hold.
_REF: Final = "$ref"
_DYNAMIC: Final = ("$dynamicRef", "$recursiveRef")
_SCHEMAS: Final = (
    *("additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "else", "if", "items", "not", "oneOf"),
    *("prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
)
_PATTERN, _PATTERNS, _ADDITIONAL = "pattern", "patternProperties", "additionalProperties"
_UNEVALUATED, _UNIQUE = "unevaluatedProperties", "uniqueItems"
_NAMED_SCHEMAS: Final = ("dependencies", "dependentSchemas", "patternProperties", "properties")


class UsedSchema(NamedTuple):
    """A schema that values may be validated by, its place, and the schema that its `$ref` leads to."""

    place: str
    schema: dict[str, Any]
    target: Any = None


class Validator:
    """Validates values by one schema, each part of a value once by each schema that a `$ref` leads to.

    The library follows every reference. If a schema refers twice to the next one, and that again to the next, it takes
    exponential time: 2 s for 16 such schemas, and twice that for each more. It also matches patterns by Python's engine, which
    may take exponential time, and whose classes of characters are others than those of columns, and compares all elements of an
    array. Each thread has results of its own, so any thread may use it.

    Args:
        schema: the schema, parsed.
        named: those that it refers to, by the URI that `$ref` has.
        format_checker: what checks formats; None: nothing.

    Attributes:
        used: the schemas that values may be validated by.
        unsupported: a line for each pattern that is not supported, and that every text matches here.
    """

    def __init__(self, schema: Any, named: Iterable[tuple[str, Any]], format_checker: FormatChecker | None = None) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import extend, validator_for
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT7

        schema = official(schema)
        others = [(name, Resource.from_contents(official(one), default_specification=DRAFT7)) for name, one in named]
        registry: Registry[Any] = Registry().with_resources(others)
        made: Any = validator_for(schema, default=Draft202012Validator)
        self.used = tuple(_used_schemas(schema, registry))
        self._targets = {id(one.schema): one.target for one in self.used if one.target is not None}
        self._refer = made.VALIDATORS[_REF]
        self._results = threading.local()
        self.unsupported: list[str] = []
        self._expressions = dict(self._patterns())
        self._additional = made.VALIDATORS[_ADDITIONAL]
        ours = {_PATTERN: self._pattern, _PATTERNS: self._pattern_properties, _ADDITIONAL: self._additional_properties}
        ours[_UNIQUE] = _unique_items
        made = extend(made, {**ours, _UNEVALUATED: _nothing} if any(_PATTERNS in one.schema for one in self.used) else ours)
        # What a dynamic reference leads to depends on the references before it.
        if not any(keyword in one.schema for one in self.used for keyword in _DYNAMIC):
            made = extend(made, {_REF: self._referred})
        self._validator: Any = made(schema, registry=registry, format_checker=format_checker)

    def check_schema(self) -> None:
        """Raises the library's SchemaError for a schema that is not valid."""
        self._validator.check_schema(self._validator.schema)

    def errors(self, value: Any) -> Iterator[ValidationError]:
        """Yields the errors of a value. Of those that one schema has for one part of it, the second time only the first."""
        self._results.known = {}
        try:
            yield from self._validator.iter_errors(value)
        finally:
            self._results.known = {}

    def _patterns(self) -> Iterator[tuple[str, str | None]]:
        """Yields the patterns, each with its expression for Arrow; None: it is not supported."""
        has_patterns = any(_PATTERNS in one.schema for one in self.used)
        for place, schema, _ in self.used:
            if has_patterns and _UNEVALUATED in schema:
                self.unsupported.append(f"{_UNEVALUATED} beside {_PATTERNS} at {place}")
            found = schema.get(_PATTERNS)
            for pattern in (*(found if isinstance(found, dict) else ()), schema.get(_PATTERN)):
                if isinstance(pattern, str):
                    try:
                        yield pattern, translated(pattern)
                    except PatternError as error:
                        self.unsupported.append(f"the pattern {shown(pattern)} at {place}: {error}")
                        yield pattern, None

    def _matches(self, pattern: str, text: str) -> bool:
        expression = self._expressions.get(pattern)
        return expression is None or bool(pc.match_substring_regex(pa.scalar(text), expression).as_py())

    def _pattern(self, validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        from jsonschema.exceptions import ValidationError

        if isinstance(instance, str) and not self._matches(pattern, instance):
            yield ValidationError(f"{instance!r} does not match {pattern!r}")

    def _pattern_properties(self, validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        if isinstance(instance, dict):
            for pattern, inner in patterns.items():
                for name, value in instance.items():
                    if self._matches(pattern, name):
                        yield from validator.descend(value, inner, path=name, schema_path=pattern)

    def _additional_properties(self, validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        """Is the library's keyword `additionalProperties`. It gets no properties that a pattern matches, and no patterns."""
        if patterns := schema.get(_PATTERNS):
            if isinstance(instance, dict):
                known = schema.get("properties", {})
                instance = {
                    name: value
                    for name, value in instance.items()
                    if name in known or not any(self._matches(one, name) for one in patterns)
                }
            schema = {name: value for name, value in schema.items() if name != _PATTERNS}
        yield from self._additional(validator, inner, instance, schema)

    def _referred(self, validator: Any, reference: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
        """Is the library's keyword `$ref`."""
        target = self._targets.get(id(schema))
        key = id(instance), id(target)
        if key in self._results.known:
            _, errors = self._results.known[key]
            yield from map(_copied, errors)
            return
        found = list(self._refer(validator, reference, instance, schema))
        if target is not None:
            # The instance must live as long as its id is used. The library changes the errors that it gets.
            self._results.known[key] = instance, [_copied(one) for one in found[:1]]
        yield from found


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Is the library's keyword `uniqueItems`, which compares each object with each other one."""
    from jsonschema.exceptions import ValidationError

    if wanted and isinstance(instance, list) and len({_key(one) for one in instance}) < len(instance):
        yield ValidationError(f"{instance!r} has non-unique elements")


def _key(value: Any) -> Any:
    """Returns what is equal for values that are equal in JSON: 1 and 1.0 are, 1 and true are not."""
    if isinstance(value, list):
        return tuple(map(_key, value))
    if isinstance(value, dict):
        return frozenset((name, _key(one)) for name, one in value.items())
    return (bool, value) if isinstance(value, bool) else value


def _nothing(validator: Any, inner: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Is a keyword that says nothing."""
    yield from ()


def _copied(error: ValidationError) -> ValidationError:
    """Returns an error that can be put in another place, with one of the errors inside: all of them double with each reference.

    The library's own copy takes the errors inside from the original.
    """
    made: Any = Exception.__new__(type(error))
    made.args = error.args
    vars(made).update(vars(error))
    made.path = made.relative_path = deque(error.relative_path)
    made.schema_path = made.relative_schema_path = deque(error.relative_schema_path)
    made.context = [_copied(one) for one in (error.context or ())[:1]]
    for one in made.context:
        one.parent = made
    return made


def _used_schemas(root: Any, registry: Registry[Any]) -> Iterator[UsedSchema]:
    """Yields the schemas that values may be validated by. Unused definitions do not count."""
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    dialect = root.get("$schema") if isinstance(root, dict) else None
    specification = DRAFT202012 if dialect is None else specification_with(dialect, default=DRAFT202012)
    waiting: list[tuple[Any, Any, str]] = [(root, registry.resolver_with_root(specification.create_resource(root)), "#")]
    seen: set[int] = set()
    while waiting:
        schema, resolver, place = waiting.pop()
        if not isinstance(schema, dict) or id(schema) in seen:
            continue
        seen.add(id(schema))
        resolver = resolver.in_subresource(specification.create_resource(schema))
        target = None
        for keyword in (_REF, *_DYNAMIC):
            if isinstance(schema.get(keyword), str):
                try:
                    found = resolver.lookup(schema[keyword])
                except Unresolvable:  # the first value that needs it raises an error
                    continue
                target = found.contents if keyword == _REF else target
                waiting.append((found.contents, found.resolver, schema[keyword]))
        yield UsedSchema(place, schema, target)
        for keyword in _SCHEMAS:
            inner = schema.get(keyword)
            if isinstance(inner, list):
                waiting += [(one, resolver, f"{place}/{keyword}/{index}") for index, one in enumerate(inner)]
            else:
                waiting.append((inner, resolver, f"{place}/{keyword}"))
        for keyword in _NAMED_SCHEMAS:
            inner = schema.get(keyword)
            if isinstance(inner, dict):
                waiting += [(one, resolver, f"{place}/{keyword}{pointer([name])}") for name, one in inner.items()]


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
        from jsonschema import FormatChecker

        checker = FormatChecker(())
        for name in CHECKED_FORMATS:
            checker.checks(name)(lambda value, name=name: not isinstance(value, str) or text_has_format(name, value))
        others = [(name, json.loads(one)) for name, one in named.items()]
        self._validator = Validator(json.loads(text), others, checker)
        refused = []
        for place, schema, _ in self._validator.used:
            used, is_text = schema.get("format"), has_type(schema.get("type", "any"), "string")
            if isinstance(used, str) and is_text and used in KNOWN_FORMATS and used not in CHECKED_FORMATS:
                refused.append(f"{used} at {place}")
        if refused:
            raise SchemaError(
                f"the JSON Schema has formats that are not supported: {', '.join(refused)}."
                f" Remove them; the formats {', '.join(CHECKED_FORMATS)} and unknown ones are supported",
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
