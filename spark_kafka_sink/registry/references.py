"""The schemas that a schema uses, directly or through others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NoReturn

from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.peer_text import quoted

MAX_REFERENCES: Final = 1000
"""Maximum number of schemas that one schema uses, so that a broken registry cannot keep a client busy."""

MAX_DEPTH: Final = 100
"""Maximum length of a chain of schemas, each of which uses the next."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema that another one uses.

    Attributes:
        name: how the other one names it: an Avro full name, a Protobuf import path, or the URI of a JSON Schema's `$ref`.
        subject: its subject in the registry.
        version: its version there.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class SchemaText:
    """A schema as its author wrote it.

    Attributes:
        kind: "AVRO", "PROTOBUF" or "JSON".
        text: the schema.
        references: the schemas that it uses.
    """

    kind: str
    text: str
    references: tuple[SchemaReference, ...] = ()


def resolved(
    schema: SchemaText, get: Callable[[SchemaReference], SchemaText], shown: Callable[[str], str] = quoted
) -> dict[str, SchemaText]:
    """Returns every schema that a schema uses, by the name of its reference. Each comes after those that it uses.

    Args:
        schema: the schema.
        get: returns a schema of the registry. It is called once for each reference.
        shown: returns a name as errors show it.

    Raises:
        RegistryError: Two different schemas have the same name, a schema uses itself, or there are too many.
    """
    found: dict[str, SchemaText] = {}
    places: dict[str, SchemaReference] = {}

    def refuse(reference: SchemaReference, text: str) -> NoReturn:
        place = f"version {reference.version} of subject '{shown(reference.subject)}'"
        raise RegistryError(f"the references of the schema cannot be resolved: {place} {text}", subject=shown(reference.subject))

    def walk(used: SchemaText, path: tuple[SchemaReference, ...]) -> None:
        for reference in used.references:
            if reference in path:
                refuse(reference, "uses itself")
            known = places.setdefault(reference.name, reference)
            if known != reference:
                other = f"version {known.version} of subject '{shown(known.subject)}'"
                refuse(reference, f"is used as '{shown(reference.name)}' together with {other}, which has the same name")
            if reference.name in found:
                continue
            if len(path) == MAX_DEPTH:
                refuse(reference, f"ends a chain of more than {MAX_DEPTH} schemas, each of which uses the next")
            if len(places) > MAX_REFERENCES:
                refuse(reference, f"is one of more than {MAX_REFERENCES:,} schemas that one schema uses")
            text = get(reference)
            walk(text, (*path, reference))
            found[reference.name] = text

    walk(schema, ())
    return found
