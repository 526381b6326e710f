"""A schema registry in this process, for faults and for what Apicurio lacks: guids, rule sets, messages of checks, logins.

`test_stand_in.py` asks it and Apicurio the same questions. What Apicurio lacks is as in Confluent's reference of the API
(https://docs.confluent.io/platform/current/schema-registry/develop/api.html) and in the classes of its server, which are named.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import urllib.parse
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

JSON: Final = "application/vnd.schemaregistry.v1+json"
LEVELS: Final = ("BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE")


@dataclass
class Answer:
    """What a request is answered with. A body that is not bytes is sent as JSON."""

    status: int = 200
    body: Any = b""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Asked:
    """A request that arrived. `path` is a URL where the server was asked as a proxy."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class RefusedError(Exception):
    """A request is answered with an error of the registry."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.answer = Answer(status, {"error_code": code, "message": message})


@dataclass
class Version:
    """A version of a subject. `body` is what was registered."""

    number: int
    schema_id: int
    body: Mapping[str, Any]
    is_deleted: bool = False


Fault = Answer | Callable[[Asked], Answer | None]


class StandIn:
    """Listens on a free loopback port until the end of a `with`. `requests` has what was asked."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Asked] = []
        self.login: str | None = None
        """The Authorization header that is required; None for any."""
        self.has_guids = True
        self.tells_subjects = True
        """Whether it answers which subjects have a schema."""
        self._faults: list[Fault] = []
        self._lock = threading.Lock()
        self._subjects: dict[str, list[Version]] = {}
        self._ids: dict[str, int] = {}
        self._bodies: dict[int, Mapping[str, Any]] = {}
        self._levels: dict[str, str] = {}
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                asked = Asked(self.command, self.path, dict(self.headers), self.rfile.read(length))
                answer = owner.answer(asked)
                body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
                self.send_response(answer.status)
                for name, value in {"Content-Type": JSON, "Content-Length": str(len(body)), **answer.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, format: str, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128  # a client that finds a queue of 5 full tries again after a second

            def handle_error(self, request: Any, client_address: Any) -> None:
                pass  # the client has gone

        self._server = Server(("127.0.0.1", 0), Handler)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"{'http' if tls is None else 'https'}://localhost:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(30)

    def fail(self, *faults: Fault) -> None:
        """Answers the next requests with these, one after the other. A function that returns None answers as usual."""
        self._faults += faults

    def answer(self, asked: Asked) -> Answer:
        with self._lock:
            self.requests.append(asked)
            fault = self._faults.pop(0) if self._faults else None
        answer = fault(asked) if callable(fault) else fault
        if answer is not None:
            return answer
        if self.login is not None and asked.headers.get("Authorization") != self.login:
            return Answer(401, {"error_code": 401, "message": "Unauthorized"})
        try:
            with self._lock:
                return Answer(200, self._handled(asked))
        except RefusedError as error:
            return error.answer

    # The registry

    def _handled(self, asked: Asked) -> Any:
        parts = urllib.parse.urlsplit(asked.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        names = [urllib.parse.unquote(name) for name in parts.path.strip("/").split("/")]
        deleted = query.get("deleted") == "true"
        match asked.method, names:
            case "GET", ["subjects"]:
                return [subject for subject in self._subjects if self._live(subject)]
            case "POST", ["subjects", subject, "versions"]:
                return self._registered(subject, asked.json)
            case "POST", ["subjects", subject]:
                return self._looked_up(subject, asked.json, deleted=deleted)
            case "GET", ["subjects", subject, *place]:
                return self._got(subject, place, urllib.parse.parse_qsl(parts.query), deleted=deleted)
            case "DELETE", ["subjects", subject, "versions", number]:
                version = self._version(subject, number, deleted=False)
                version.is_deleted = True
                return version.number
            case "DELETE", ["subjects", subject]:
                return self._deleted(subject, permanently=query.get("permanent") == "true")
            case "GET", ["schemas", "ids", number, "versions"] if self.tells_subjects:
                return self._uses(number)
            case "GET", ["schemas", kind, number] if kind == "ids" or (kind == "guids" and self.has_guids):
                return self._by_number(kind, number)
            case "POST", ["compatibility", "subjects", subject, "versions", *rest]:
                return self._checked(subject, asked.json, only_latest=rest == ["latest"])
            case "PUT", ["config", subject]:
                if (level := asked.json["compatibility"]) not in LEVELS:
                    raise RefusedError(422, 42203, "Invalid compatibility level")
                self._levels[subject] = level
                return {"compatibilityLevel": level}
        raise RefusedError(404, 404, "HTTP 404 Not Found")

    def _by_number(self, kind: str, number: str) -> Mapping[str, Any]:
        for schema_id in self._bodies:
            body = self._body_of(schema_id)
            if number == (str(schema_id) if kind == "ids" else body.get("guid")):
                return body
        raise RefusedError(404, 40403, f"Schema {number} not found")

    def _uses(self, number: str) -> list[Mapping[str, Any]]:
        self._by_number("ids", number)
        found = ((subject, version) for subject in self._subjects for version in self._live(subject))
        return [{"subject": one, "version": each.number} for one, each in found if str(each.schema_id) == number]

    def _got(self, subject: str, place: list[str], query: list[tuple[str, str]], *, deleted: bool) -> Any:
        match place:
            case ["versions"]:
                return [version.number for version in self._known(subject)]
            case ["versions", number]:
                return self._shown(subject, self._version(subject, number, deleted=deleted))
            case ["metadata"]:
                keys, values = ([value for name, value in query if name == wanted] for wanted in ("key", "value"))
                return self._with_metadata(subject, dict(zip(keys, values, strict=True)), deleted=deleted)
        raise RefusedError(404, 404, "HTTP 404 Not Found")

    def _live(self, subject: str) -> list[Version]:
        return [version for version in self._subjects.get(subject, []) if not version.is_deleted]

    def _known(self, subject: str, *, deleted: bool = False) -> list[Version]:
        found = self._subjects.get(subject, []) if deleted else self._live(subject)
        if not found:
            raise RefusedError(404, 40401, f"Subject '{subject}' not found.")
        return found

    def _version(self, subject: str, number: str, *, deleted: bool) -> Version:
        known = self._known(subject, deleted=deleted)
        if number in ("latest", "-1"):
            return known[-1]
        found = next((version for version in known if str(version.number) == number), None)
        if found is None:
            raise RefusedError(404, 40402, f"Version {number} not found.")
        return found

    def _with_metadata(self, subject: str, wanted: Mapping[str, str], *, deleted: bool) -> Mapping[str, Any]:
        """SubjectMetadataResource.getLatestWithMetadata."""
        for version in reversed(self._known(subject, deleted=deleted)):
            has = ((version.body.get("metadata") or {}).get("properties") or {}).items()
            if wanted.items() <= has:
                return self._shown(subject, version)
        raise RefusedError(404, 40403, "Schema not found")

    def _registered(self, subject: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        content = self._content(body)
        live = self._live(subject)
        if not any(self._content(version.body) == content for version in live):
            if messages := self._misfits(subject, body, live):
                raise RefusedError(409, 40901, f"Schema being registered is incompatible with an earlier schema: {messages}")
            schema_id = self._ids.setdefault(content, len(self._ids) + 1)
            self._bodies[schema_id] = body
            versions = self._subjects.setdefault(subject, [])
            versions.append(Version(len(versions) + 1, schema_id, body))
        version = next(each for each in self._live(subject) if self._content(each.body) == content)
        return {"id": version.schema_id, "version": version.number, **self._guid(content)}

    def _looked_up(self, subject: str, body: Mapping[str, Any], *, deleted: bool) -> Mapping[str, Any]:
        content = self._content(body)
        for version in self._known(subject, deleted=deleted):
            if self._content(version.body) == content:
                return self._shown(subject, version)
        raise RefusedError(404, 40403, "Schema not found")

    def _shown(self, subject: str, version: Version) -> Mapping[str, Any]:
        return {"subject": subject, "version": version.number, "id": version.schema_id, **self._body_of(version.schema_id)}

    def _body_of(self, schema_id: int) -> Mapping[str, Any]:
        """Confluent leaves out the type of Avro schemas, and what is empty."""
        body = self._bodies[schema_id]
        shown = {name: value for name, value in body.items() if value and (name, value) != ("schemaType", "AVRO")}
        return {**shown, **self._guid(self._content(body))}

    def _guid(self, content: str) -> Mapping[str, str]:
        return {"guid": str(uuid.uuid5(uuid.NAMESPACE_OID, content))} if self.has_guids else {}

    def _deleted(self, subject: str, *, permanently: bool) -> list[int]:
        found = self._known(subject, deleted=permanently)
        for version in found:
            version.is_deleted = True
        if permanently:
            del self._subjects[subject]
        return [version.number for version in found]

    def _content(self, body: Mapping[str, Any]) -> str:
        """Returns what makes schemas equal. Raises as Confluent does for a schema that cannot be parsed."""
        text, kind = body.get("schema") or "", body.get("schemaType") or "AVRO"
        if kind not in ("AVRO", "PROTOBUF", "JSON"):
            raise RefusedError(422, 42201, f"Invalid schema type {kind}")
        if kind != "PROTOBUF":
            try:
                text = json.dumps(json.loads(text), sort_keys=kind == "JSON")
            except ValueError as error:
                raise RefusedError(422, 42201, f"Invalid schema {text}, details: {error}") from None
        if kind == "AVRO" and re.search(r'"type": "nonsense"', text):
            raise RefusedError(422, 42201, f"Invalid schema {text}, details: Undefined name: nonsense")
        for each in body.get("references") or []:
            if each["subject"] not in self._subjects:
                raise RefusedError(
                    422, 42201, f"Invalid schema, details: No schema reference found for subject {each['subject']}"
                )
        return json.dumps([kind, text, body.get("references") or [], body.get("ruleSet"), body.get("metadata")])

    # Compatibility

    def _checked(self, subject: str, body: Mapping[str, Any], *, only_latest: bool) -> Mapping[str, Any]:
        live = self._known(subject)
        self._content(body)
        messages = self._misfits(subject, body, live[-1:] if only_latest else live)
        return {"is_compatible": not messages, "messages": messages}

    def _misfits(self, subject: str, body: Mapping[str, Any], versions: list[Version]) -> list[str]:
        """Says why a record schema cannot read the data of earlier versions: Confluent's Difference.java, for flat records."""
        level = self._levels.get(subject, "BACKWARD")
        if level == "NONE" or body.get("schemaType", "AVRO") != "AVRO":
            return []
        new = _fields(body)
        for version in reversed(versions if "TRANSITIVE" in level else versions[-1:]):
            old = _fields(version.body)
            said = [text for number, name in enumerate(new) if (text := _difference(number, new[name], old.get(name)))]
            if said:
                return [*said, f"{{oldSchemaVersion: {version.number}}}", f"{{compatibility: '{level}'}}"]
        return []


def _fields(body: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    read = json.loads(body["schema"])
    return {each["name"]: each for each in read.get("fields", [])} if isinstance(read, dict) else {}


def _difference(number: int, new: Mapping[str, Any], old: Mapping[str, Any] | None) -> str:
    name, place = new["name"], f"at path '/fields/{number}' in the new schema"
    if old is None:
        said = f"The field '{name}' {place} has no default value and is missing in the old schema"
        return "" if "default" in new else _message("READER_FIELD_MISSING_DEFAULT_VALUE", said, name)
    if new["type"] == old["type"]:
        return ""
    said = f"The type (path '/fields/{number}/type') of a field in the new schema does not match with the old schema"
    return _message("TYPE_MISMATCH", said, f"reader type: {new['type']} not compatible with writer type: {old['type']}")


def _message(kind: str, said: str, more: str) -> str:
    return f"{{errorType:'{kind}', description:'{said}', additionalInfo:'{more}'}}"
