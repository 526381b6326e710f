"""Reads the JSON of a registry's responses, whose types are not trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, TypeGuard

from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.registry.http import MAX_SAID, Call, RegistryHttp

# Of Avro's SchemaCompatibility, which registries name in their messages.
_MISFITS: Final = (
    *("NAME_MISMATCH", "FIXED_SIZE_MISMATCH", "MISSING_ENUM_SYMBOLS", "READER_FIELD_MISSING_DEFAULT_VALUE"),
    *("TYPE_MISMATCH", "MISSING_UNION_BRANCH"),
)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema in a registry.

    Attributes:
        schema: its text.
        schema_id: its id, which records carry.
        subject: the subject that it was found in; empty if it was found by its id.
        version: its version in that subject; None if the registry did not say.
        guid: its globally unique id; None from registries that have none.
        rules: its active rules, as texts such as "ssn (ENCRYPT)". A producer that ignores them may write secrets in clear text.
    """

    schema: SchemaText
    schema_id: int
    subject: str = ""
    version: int | None = None
    guid: str | None = None
    rules: tuple[str, ...] = ()


class Answer:
    """The JSON of a response, whose types are not trusted."""

    def __init__(self, call: Call, read: Any, http: RegistryHttp) -> None:
        """Raises RegistryError if it is not a JSON object."""
        self._call = call
        self._http = http
        if not isinstance(read, dict):
            self._refuse("is not a JSON object")
        self._fields: Mapping[str, Any] = read

    def registered(self, given: SchemaText | None, subject: str, schema_id: int | None = None) -> RegisteredSchema:
        """Returns the schema of the response.

        Args:
            given: the schema that was sent, for responses without a schema.
            subject: the subject that was asked.
            schema_id: the id that was asked for, for responses without an id.
        """
        fields = self._fields
        number: Any = fields.get("id") if schema_id is None else schema_id
        if not _is_number(number) or not 0 <= number < 2**31:
            self._refuse("has no valid id")
        version: Any = fields.get("version")
        guid = fields.get("guid")
        return RegisteredSchema(
            schema=self._schema() if given is None else given,
            schema_id=number,
            subject=self._subject(subject),
            version=version if _is_number(version) and version > 0 else None,
            guid=guid if isinstance(guid, str) and guid else None,
            rules=tuple(self._rules()),
        )

    def _subject(self, asked: str) -> str:
        """Returns the registry's name of the subject, which may differ by a context or an alias. Errors show it."""
        name = self._fields.get("subject")
        return name if isinstance(name, str) and name and self._http.shown(name) == name else asked

    def misfits(self) -> list[str]:
        """Returns the messages of a check of compatibility; an empty list if the schema is compatible."""
        is_compatible, messages = self._fields.get("is_compatible"), self._fields.get("messages")
        if not isinstance(is_compatible, bool):
            self._refuse("has no field is_compatible")
        if is_compatible:
            return []
        said = [each for each in messages if isinstance(each, str)] if isinstance(messages, list) else []
        if self._http.holds_login:
            known = [code for code in _MISFITS if any(code in each for each in said)]
            return known or ["its text is not shown, because it may repeat the login"]
        return [self._http.shown(each, MAX_SAID) for each in said] or ["the registry gave no reason"]

    def _schema(self) -> SchemaText:
        text, kind = self._fields.get("schema"), self._fields.get("schemaType") or "AVRO"  # Confluent omits AVRO
        if not isinstance(text, str) or not isinstance(kind, str):
            self._refuse("has no schema")
        references = self._fields.get("references") or []
        if not isinstance(references, list):
            self._refuse("has references that are not a list")
        return SchemaText(kind.upper(), text, tuple(self._reference(each) for each in references))

    def _reference(self, read: Any) -> SchemaReference:
        fields: dict[str, Any] = read if isinstance(read, dict) else {}
        name, subject, version = fields.get("name"), fields.get("subject"), fields.get("version")
        if not isinstance(name, str) or not isinstance(subject, str) or not _is_number(version):
            self._refuse("has a reference without name, subject or version")
        return SchemaReference(name, subject, version)

    def _rules(self) -> list[str]:
        """Returns the active rules. What is not understood counts as a rule, because a rule may protect secrets."""
        rule_set = self._fields.get("ruleSet") or {}
        if not isinstance(rule_set, dict):
            return ["a rule set in an unknown form"]
        rules = [rule for group in rule_set.values() if isinstance(group, list) for rule in group]
        odd = [name for name, group in rule_set.items() if name.endswith("Rules") and not isinstance(group, list | None)]
        return [self._rule(rule) for rule in rules if not (isinstance(rule, dict) and rule.get("disabled") is True)] + [
            self._http.shown(name) for name in odd
        ]

    def _rule(self, rule: Any) -> str:
        if not isinstance(rule, dict):
            return "a rule in an unknown form"
        return self._http.shown(f"{rule.get('name') or 'a rule without a name'} ({rule.get('type') or 'no type'})")

    def _refuse(self, text: str) -> NoReturn:
        refuse_answer(self._call, self._http.urls, text)


def refuse_answer(call: Call, url: str, text: str) -> NoReturn:
    raise RegistryError(f"could not {call.action}: the response of the schema registry {url} {text}", url=url, **call.facts())


def _is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


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
