"""A client of a schema registry: registers schemas, finds them, and checks their compatibility.

Counterpart of confluent-kafka's SchemaRegistryClient.
"""

from __future__ import annotations

import copy
import urllib.parse
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from spark_kafka_sink.errors import RegistryError, SchemaError, SchemaIncompatibleError, UsageError
from spark_kafka_sink.options.registry_options import RegistryConfig
from spark_kafka_sink.peer_text import quoted
from spark_kafka_sink.registry.http import Call, Deadline, RegistryHttp, Timing
from spark_kafka_sink.registry.response_bodies import (
    Answer,
    RegisteredSchema,
    SchemaReference,
    SchemaText,
    refuse_answer,
    resolved,
)

__all__ = ["CALL_S", "RegisteredSchema", "RegistryClient", "SchemaReference", "SchemaText", "Timing"]

CALL_S: Final = 120.0
"""Default time limit of one call with all its retries, in s."""

MAX_LINE: Final = 2_000
"""Characters of a line about a schema that an error shows."""

NO_SUBJECT: Final = frozenset({40401, 40402, 40404, 40406})
"""Confluent's error codes for a subject or a version that does not exist, or that is deleted."""
NO_SCHEMA: Final = NO_SUBJECT | {40403}
"""The same, and the code for a schema that its subject does not have."""
_NO_ENDPOINT: Final = frozenset({404, 405})


@dataclass(slots=True)
class _Kept:
    """State that a client shares with those that `within` makes of it."""

    by_id: dict[tuple[int, str | None], RegisteredSchema] = field(default_factory=dict)
    is_closed: bool = False


class RegistryClient:
    """Calls a schema registry. Any thread may use it. Use it as a context manager.

    Each call has a deadline. `within` gives several calls one deadline.

    Schemas by id are kept, because they never change. Everything else is asked for each time.
    """

    def __init__(self, config: RegistryConfig, call_s: float = CALL_S, timing: Timing | None = None) -> None:
        """Makes a client. It connects at the first call.

        Args:
            config: the settings.
            call_s: time limit of one call with all its retries, in s.
            timing: the clock and the pauses; replaced in tests.

        Raises:
            OptionError: A file or a reference of an option cannot be read.
        """
        self._http = RegistryHttp(config, call_s, timing or Timing())
        self._capacity = config.cache_capacity
        self._kept = _Kept()
        self._shared: Deadline | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Forgets what it keeps. Later calls raise UsageError; a second `close` does nothing."""
        self._kept.is_closed = True
        self._kept.by_id.clear()

    def within(self, limit_s: float) -> RegistryClient:
        """Returns this client with one deadline for all of its calls together, such as those that find one schema.

        It has no state of its own: closing one closes both.

        Args:
            limit_s: time limit from now, in s. The limit of each call applies, too.
        """
        limited = copy.copy(self)
        limited._shared = self._http.deadline(limit_s)
        return limited

    def register(self, subject: str, schema: SchemaText, *, normalize: bool = False) -> RegisteredSchema:
        """Registers a schema, and returns it with its id. A registered schema keeps its id and version.

        Args:
            subject: the subject.
            schema: the schema.
            normalize: whether the registry ignores differences without a meaning, such as white space.

        Raises:
            SchemaIncompatibleError: It is not compatible with the earlier versions.
            RegistryError: The registry could not be reached, or refused the schema.
        """
        action = f"register a schema for subject {_shown(subject)}"
        path, query = f"{_path(subject)}/versions", {"normalize": _word(normalize)}
        call = Call(action, "POST", path, query, _body(schema), subject)
        try:
            return self._ask(call).registered(schema, subject)
        except RegistryError as error:
            # Confluent's code, and that of Apicurio and of old servers
            status, code = error.facts.get("status"), error.facts.get("error_code")
            if code == 40901 or (status == 409 and code in (None, 409)):
                raise SchemaIncompatibleError(error.message, **error.facts) from None
            raise

    def look_up(
        self, subject: str, schema: SchemaText, *, normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema | None:
        """Returns a schema of a subject with its id and version; None if the subject does not have it. Registers nothing.

        Args:
            subject: the subject.
            schema: the schema.
            normalize: as in `register`.
            deleted: whether versions count that were deleted, but not permanently.
        """
        action = f"look up a schema in subject {_shown(subject)}"
        query = {"normalize": _word(normalize), "deleted": _word(deleted)}
        call = Call(action, "POST", _path(subject), query, _body(schema), subject)
        answer = self._ask_unless(NO_SCHEMA, call)
        return None if answer is None else answer.registered(schema, subject)

    def latest(self, subject: str) -> RegisteredSchema | None:
        """Returns the newest version of a subject; None if there is no such subject."""
        call = Call(
            f"get the latest schema of subject '{self.shown(subject)}'",  # the registry may have named it
            "GET",
            f"{_path(subject)}/versions/latest",
            subject=self.shown(subject),
        )
        answer = self._ask_unless(NO_SUBJECT, call)
        return None if answer is None else answer.registered(None, subject)

    def latest_with(self, subject: str, metadata: Mapping[str, str]) -> RegisteredSchema | None:
        """Returns the newest version of a subject whose metadata has these properties; None if there is none.

        Confluent's getLatestWithMetadata. As there, a version counts that was deleted, but not permanently.
        """
        query = [("deleted", "true"), *(("key", key) for key in metadata), *(("value", value) for value in metadata.values())]
        action = f"get the latest schema with this metadata of subject {_shown(subject)}"
        call = Call(action, "GET", f"{_path(subject)}/metadata", query, subject=subject)
        answer = self._ask_unless(NO_SCHEMA, call)
        return None if answer is None else answer.registered(None, subject)

    def version(self, subject: str, number: int, deleted: bool = False) -> RegisteredSchema:
        """Returns a version of a subject. Raises RegistryError if there is none.

        Args:
            subject: the subject.
            number: the version, from 1.
            deleted: whether it may be one that was deleted, but not permanently.
        """
        action = f"get version {number} of subject '{self.shown(subject)}'"  # the registry may have named it
        query = {"deleted": "true"} if deleted else {}
        call = Call(action, "GET", f"{_path(subject)}/versions/{number}", query, subject=self.shown(subject))
        return self._ask(call).registered(None, subject)

    def by_id(self, schema_id: int, subject: str | None = None) -> RegisteredSchema:
        """Returns the schema with an id. Raises RegistryError if there is none.

        Args:
            schema_id: the id.
            subject: one of its subjects, whose rules apply, and whose context has the id.
        """
        kept = self._kept.by_id
        found = kept.get((schema_id, subject))
        if found is not None:
            return found
        query = {} if subject is None else {"subject": subject}
        call = Call(f"get the schema with id {schema_id}", "GET", f"/schemas/ids/{schema_id}", query, subject=subject or "")
        answer = self._ask(call)
        found = kept[schema_id, subject] = answer.registered(None, "", schema_id)
        for oldest in list(kept)[: -self._capacity]:
            kept.pop(oldest, None)
        return found

    def by_guid(self, guid: str) -> RegisteredSchema:
        """Returns the schema with a globally unique id, whose `schema_id` is 0. Raises RegistryError if there is none."""
        call = Call(f"get the schema with the guid {guid}", "GET", f"/schemas/guids/{urllib.parse.quote(guid, safe='')}")
        return self._ask(call).registered(None, "", 0)

    def has_guids(self) -> bool:
        """Returns whether the registry finds schemas by their guid. Readers of ids in headers need that.

        It may also be True if the login has no right to ask.
        """
        call = Call("find out whether the registry has guids", "GET", f"/schemas/guids/{uuid.UUID(int=0)}")
        try:
            self._ask(call)
        except RegistryError as error:
            if error.facts.get("error_code") in NO_SCHEMA or error.facts.get("status") == 403:
                return True
            if error.facts.get("status") in _NO_ENDPOINT:
                return False
            raise
        return True

    def subjects_of(self, schema_id: int) -> list[str] | None:
        """Returns the subjects that have a schema with this id; None if the registry does not offer that."""
        path = f"/schemas/ids/{schema_id}/versions"
        call = Call(f"find the subjects of the schema with id {schema_id}", "GET", path)
        try:
            read = self._read(call)
        except RegistryError as error:
            if error.facts.get("error_code") in NO_SCHEMA:
                return []
            if error.facts.get("status") in _NO_ENDPOINT:
                return None
            raise
        names = [each.get("subject") if isinstance(each, dict) else None for each in read] if isinstance(read, list) else [None]
        if not all(isinstance(name, str) for name in names):
            refuse_answer(call, self._http.urls, "is not a list of subjects with versions")
        return sorted({str(name) for name in names})

    def references(self, schema: SchemaText) -> dict[str, SchemaText]:
        """Returns every schema that a schema uses, directly or through others, by the name of its reference.

        Each comes after those that it uses, so they can be parsed in this order.

        Raises:
            RegistryError: One does not exist, or two different ones have the same name.
        """
        return {name: one.schema for name, one in self.used_by(schema).items()}

    def used_by(self, schema: SchemaText) -> dict[str, RegisteredSchema]:
        """Returns what `references` returns, with the rules of each schema. Raises what `references` raises."""
        found: dict[str, RegisteredSchema] = {}

        def get(each: SchemaReference) -> SchemaText:
            found[each.name] = self.version(each.subject, each.version, deleted=True)
            return found[each.name].schema

        return {name: found[name] for name in resolved(schema, get, self.shown)}

    def misfits(self, subject: str, schema: SchemaText, *, normalize: bool = False) -> list[str]:
        """Checks what `register` would check, without registering anything.

        Args:
            subject: the subject, whose compatibility level decides which versions count.
            schema: the schema.
            normalize: as in `register`.

        Returns:
            The registry's messages, at least one, if the schema is not compatible. An empty list if it is, or if there is no such
            subject.
        """
        action = f"check the compatibility of a schema with subject {_shown(subject)}"
        path, query = f"/compatibility{_path(subject)}/versions", {"normalize": _word(normalize), "verbose": "true"}

        def checked(place: str) -> list[str]:
            call = Call(action, "POST", path + place, query, _body(schema), subject)
            answer = self._ask_unless(NO_SUBJECT, call)
            return [] if answer is None else answer.misfits()

        try:
            return checked("")
        except RegistryError as error:
            # Karapace and old registries check against one version only.
            if error.facts.get("status") not in _NO_ENDPOINT:
                raise
            return checked("/latest")

    def shown(self, text: str) -> str:
        """Returns text of the registry for an error, as one printable line without the login."""
        return self._http.shown(text)

    def hidden(self, error: SchemaError) -> SchemaError:
        """Returns an error with text of the registry's schemas, line by line as `shown`, also in its facts."""
        lines = error.message.split("\n")
        text = "\n".join(line[: len(line) - len(line.lstrip(" "))] + self._http.shown(line, MAX_LINE) for line in lines)
        return SchemaError(text, **{name: self._hidden(fact) for name, fact in error.facts.items()})

    def _hidden(self, fact: Any) -> Any:
        if isinstance(fact, str):
            return self._http.shown(fact, MAX_LINE)
        return tuple(map(self._hidden, fact)) if isinstance(fact, tuple) else fact

    def _ask(self, call: Call) -> Answer:
        return Answer(call, self._read(call), self._http)

    def _ask_unless(self, codes: frozenset[int], call: Call) -> Answer | None:
        """Returns a response; None if it is an error with one of these codes."""
        try:
            return self._ask(call)
        except RegistryError as error:
            if error.facts.get("error_code") in codes:
                return None
            raise

    def _read(self, call: Call) -> Any:
        if self._kept.is_closed:
            raise UsageError("the client of the schema registry is closed")
        return self._http.send(call, self._shared)


def _body(schema: SchemaText) -> dict[str, object]:
    body: dict[str, object] = {"schema": schema.text, "schemaType": schema.kind}
    if schema.references:
        body["references"] = [{"name": each.name, "subject": each.subject, "version": each.version} for each in schema.references]
    return body


def _path(subject: str) -> str:
    """Returns the path of a subject. A lone surrogate in its name becomes a question mark, which no subject has."""
    return f"/subjects/{urllib.parse.quote(subject, safe='', errors='replace')}"


def _shown(subject: str) -> str:
    return f"'{quoted(subject)}'"


def _word(flag: bool) -> str:
    return "true" if flag else "false"
