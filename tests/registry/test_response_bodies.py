"""The schemas that a schema uses: each once, before those that use it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.registry.response_bodies import MAX_REFERENCES, SchemaReference, SchemaText, resolved


def using(*names: str) -> SchemaText:
    return SchemaText("AVRO", f"uses {names}", tuple(SchemaReference(name, f"subject of {name}", 1) for name in names))


class Registry:
    """Has the schemas of some names, and counts how often each is asked for."""

    def __init__(self, schemas: Mapping[str, SchemaText]) -> None:
        self._schemas = schemas
        self.asked: list[str] = []

    def get(self, reference: SchemaReference) -> SchemaText:
        self.asked.append(reference.name)
        return self._schemas[reference.name]


def test_a_schema_comes_after_those_that_it_uses_and_is_fetched_once() -> None:
    registry = Registry({"left": using("base"), "right": using("base"), "base": using(), "top": using("left", "right")})

    found = resolved(using("top", "base"), registry.get)

    assert list(found) == ["base", "left", "right", "top"]
    assert sorted(registry.asked) == ["base", "left", "right", "top"]
    assert found["left"] == using("base")


@pytest.mark.fault("schema registry", "references in a circle, without end, or two of one name")
def test_a_schema_that_uses_itself_is_an_error() -> None:
    with pytest.raises(RegistryError, match="version 1 of subject 'subject of a' uses itself"):
        resolved(using("a"), Registry({"a": using("b"), "b": using("a")}).get)


@pytest.mark.fault("schema registry", "references in a circle, without end, or two of one name")
def test_two_schemas_of_one_name_are_an_error() -> None:
    other = SchemaText("AVRO", "", (SchemaReference("a", "elsewhere", 3),))
    with pytest.raises(RegistryError, match="version 3 of subject 'elsewhere' is used as 'a' together with version 1 of subject"):
        resolved(using("a", "b"), Registry({"a": using(), "b": other}).get)


@pytest.mark.fault("schema registry", "references in a circle, without end, or two of one name")
def test_a_chain_without_end_is_an_error() -> None:
    numbers = itertools.count()

    with pytest.raises(RegistryError, match="ends a chain of more than 100 schemas"):
        resolved(using("first"), lambda _: using(str(next(numbers))))


def test_schemas_without_number_are_an_error() -> None:
    many = using(*map(str, range(MAX_REFERENCES + 1)))

    with pytest.raises(RegistryError, match=r"is one of more than 1,000 schemas"):
        resolved(many, lambda _: using())
