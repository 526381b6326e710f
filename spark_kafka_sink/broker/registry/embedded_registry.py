"""An embedded schema registry: Confluent's API in this process, in memory, for development and tests."""

from __future__ import annotations

import json
import socket
import threading
import urllib.parse
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, Self

from spark_kafka_sink.broker.registry.registry_schemas import check_schema, misfits, serialized
from spark_kafka_sink.errors import InstallationError, SchemaError, UsageError
from spark_kafka_sink.registry.response_bodies import SchemaReference, SchemaText

CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
LEVELS: Final = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
KINDS: Final = ("AVRO", "PROTOBUF", "JSON")
_LARGEST_BODY: Final = 16 * 1024 * 1024
_LARGEST_DISCARDED: Final = 4 * _LARGEST_BODY
_KEPT: Final = ("schema", "schemaType", "references", "metadata", "ruleSet")


class EmbeddedRegistry:
    """A schema registry with Confluent's API, in memory, on a free port of 127.0.0.1. Not for production.

    [A schema registry](broker.md#a-schema-registry) lists what it supports. Use it as a context manager, or call `start()` and
    `stop()`. Schemas are lost at `stop()`.

    Example::

        with EmbeddedBroker() as broker, EmbeddedRegistry() as registry:
            options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "orders"}
            options |= {"value.format": "avro", "schema.registry.url": registry.url}
            publish(df, options=options)

    Args:
        port: the port; 0 picks a free one.
    """

    def __init__(self, *, port: int = 0) -> None:
        self._port = port
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def start(self) -> None:
        """Starts to listen. Does nothing if it runs already.

        Raises:
            OSError: the port is in use.
        """
        if self._server is not None:
            return
        self._server = _Server(self._port, _Schemas())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="embedded-registry", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops to listen and forgets all schemas. Does nothing if it does not run."""
        server, thread = self._server, self._thread
        self._server = self._thread = None
        if server is None or thread is None:
            return
        server.shutdown()
        server.server_close()
        thread.join(10.0)

    @property
    def url(self) -> str:
        """The value of schema.registry.url. Raises UsageError if the registry does not run."""
        if self._server is None:
            raise UsageError("the registry does not run: call start(), or use it as a context manager")
        return f"http://127.0.0.1:{self._server.server_port}"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 128  # a client that finds a short queue full tries again only after a second

    def __init__(self, port: int, schemas: _Schemas) -> None:
        self.schemas = schemas
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", port), _Handler)

    def server_bind(self) -> None:
        """Binds without looking up the name of this machine, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignores a client that has gone."""


class _Handler(BaseHTTPRequestHandler):
    timeout = 30.0
    server: _Server

    def do_GET(self) -> None:
        """Answers any request."""
        try:
            data = self._read()
            self._check_site()
            body = _body(data)
            with self.server.lock:
                status, answer = 200, self.server.schemas.answer(self.command, self.path, body)
        except RefusedError as error:
            status, answer = error.status, {"error_code": error.code, "message": error.message}
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _check_site(self) -> None:
        """Raises RefusedError for another site's page in a browser: the registry has no logins."""
        host, port = self.headers.get("Host"), self.server.server_port
        if "Origin" in self.headers or host not in (None, f"127.0.0.1:{port}", f"localhost:{port}"):
            raise RefusedError(403, 403, f"only programs that use http://127.0.0.1:{port} are answered, not pages of other sites")

    def _read(self) -> bytes:
        """Returns the body. Raises RefusedError if its length is missing, not valid, or too large."""
        if "Transfer-Encoding" in self.headers:
            raise RefusedError(411, 411, "the request needs a Content-Length")
        text = (self.headers.get("Content-Length") or "0").strip()
        if not (text.isascii() and text.isdecimal() and len(text) <= 18):
            raise RefusedError(400, 400, "the Content-Length is not a number")
        length = int(text)
        if length <= _LARGEST_BODY:
            return self.rfile.read(length)
        # A client that still sends would not read the answer.
        left = min(length, _LARGEST_DISCARDED)
        while left and (data := self.rfile.read1(min(left, 65536))):
            left -= len(data)
        raise RefusedError(413, 413, f"the body has more than {_LARGEST_BODY:,} bytes")

    do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


class RefusedError(Exception):
    """A request that is answered with an error of Confluent's API."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message


def _body(data: bytes) -> Mapping[str, Any]:
    try:
        read = json.loads(data or b"{}")
    except (ValueError, RecursionError):
        raise RefusedError(400, 400, "the body is not JSON") from None
    if not isinstance(read, dict):
        raise RefusedError(400, 400, "the body is not a JSON object")
    return read


@dataclass(slots=True)
class _Version:
    number: int
    schema_id: int
    is_deleted: bool = False


class _Schemas:
    def __init__(self) -> None:
        self._subjects: dict[str, list[_Version]] = {}
        self._ids: dict[str, int] = {}
        self._schemas: dict[int, Mapping[str, Any]] = {}
        self._descriptors: dict[str, str] = {}  # by content, because the compiler takes some 0.1 s
        self._levels: dict[str, str] = {}
        self._level = "BACKWARD"

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        """Returns the answer to a request. Raises RefusedError."""
        try:
            parts = urllib.parse.urlsplit(path)
        except ValueError:
            raise RefusedError(404, 404, "HTTP 404 Not Found") from None
        query = dict(urllib.parse.parse_qsl(parts.query))
        found = self._answer(method, parts.path, query, body)
        if query.get("format") == "serialized" and method == "GET" and isinstance(found, Mapping) and "schema" in found:
            return {**found, "schema": self._serialized(found)}
        return found

    def _answer(self, method: str, path: str, query: Mapping[str, str], body: Mapping[str, Any]) -> Any:
        deleted = query.get("deleted") == "true"
        match method, [urllib.parse.unquote(name) for name in path.strip("/").split("/")]:
            case "GET", ["subjects"]:
                return [subject for subject in self._subjects if deleted or self._live(subject)]
            case "POST", ["subjects", subject, "versions"]:
                return self._registered(subject, body)
            case "POST", ["subjects", subject]:
                return self._looked_up(subject, body, deleted=deleted)
            case "GET", ["subjects", subject, "versions"]:
                return [version.number for version in self._known(subject, deleted=deleted)]
            case "GET", ["subjects", subject, "versions", number]:
                return self._shown(subject, self._version(subject, number, deleted=deleted))
            case "DELETE", ["subjects", subject]:
                return self._deleted(subject, permanently=query.get("permanent") == "true")
            case "DELETE", ["subjects", subject, "versions", number]:
                version = self._version(subject, number, deleted=False)
                version.is_deleted = True
                return version.number
            case "GET", ["schemas", "types"]:
                return list(KINDS)
            case "GET", ["schemas", "guids", guid]:
                return self._of_id(next((one for content, one in self._ids.items() if _guid(content) == guid), 0), guid)
            case "GET", ["schemas", "ids", number]:
                return self._of_id(_number(number), number)
            case "GET", ["schemas", "ids", number, "versions"]:
                self._of_id(_number(number), number)
                return [
                    {"subject": subject, "version": version.number}
                    for subject in self._subjects
                    for version in self._live(subject)
                    if str(version.schema_id) == number
                ]
        return self._answer_about_compatibility(method, path, body)

    def _answer_about_compatibility(self, method: str, path: str, body: Mapping[str, Any]) -> Any:
        match method, [urllib.parse.unquote(name) for name in path.strip("/").split("/")]:
            case "POST", ["compatibility", "subjects", subject, "versions"]:
                return self._checked(subject, body, self._known(subject))
            case "POST", ["compatibility", "subjects", subject, "versions", number]:
                return self._checked(subject, body, [self._version(subject, number, deleted=False)])
            case "GET", ["config"]:
                return {"compatibilityLevel": self._level}
            case "GET", ["config", subject]:
                return {"compatibilityLevel": self._levels.get(subject, self._level)}
            case "PUT", ["config"]:
                self._level = _level(body)
                return {"compatibility": self._level}
            case "PUT", ["config", subject]:
                self._levels[subject] = _level(body)
                return {"compatibility": self._levels[subject]}
        raise RefusedError(404, 404, "HTTP 404 Not Found")

    # Subjects and versions

    def _live(self, subject: str) -> list[_Version]:
        return [version for version in self._subjects.get(subject, []) if not version.is_deleted]

    def _known(self, subject: str, *, deleted: bool = False) -> list[_Version]:
        found = self._subjects.get(subject, []) if deleted else self._live(subject)
        if not found:
            raise RefusedError(404, 40401, f"Subject '{subject}' not found.")
        return found

    def _version(self, subject: str, number: str, *, deleted: bool) -> _Version:
        known = self._known(subject, deleted=deleted)
        if number in ("latest", "-1"):
            return known[-1]
        found = next((version for version in known if str(version.number) == number), None)
        if found is None:
            raise RefusedError(404, 40402, f"Version {number} not found.")
        return found

    def _registered(self, subject: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        content = self._content(body)
        live = self._live(subject)
        schema_id = self._ids.get(content, 0)
        found = next((version for version in live if version.schema_id == schema_id), None)
        if found is None:
            if texts := self._misfits(subject, body, live):
                raise RefusedError(409, 409, f"Schema being registered is incompatible with an earlier schema: {texts}")
            schema_id = self._ids.setdefault(content, len(self._ids) + 1)
            self._schemas.setdefault(schema_id, {name: body[name] for name in _KEPT if body.get(name)})
            versions = self._subjects.setdefault(subject, [])
            found = _Version(max((version.number for version in versions), default=0) + 1, schema_id)
            versions.append(found)
        return self._shown(subject, found)

    def _looked_up(self, subject: str, body: Mapping[str, Any], *, deleted: bool) -> Mapping[str, Any]:
        known = self._known(subject, deleted=deleted)
        schema_id = self._ids.get(self._content(body), 0)
        found = next((version for version in known if version.schema_id == schema_id), None)
        if found is None:
            raise RefusedError(404, 40403, "Schema not found")
        return self._shown(subject, found)

    def _deleted(self, subject: str, *, permanently: bool) -> list[int]:
        found = self._known(subject, deleted=permanently)
        for version in found:
            version.is_deleted = True
        if permanently:
            del self._subjects[subject]
        return [version.number for version in found]

    def _shown(self, subject: str, version: _Version) -> Mapping[str, Any]:
        return {"subject": subject, "version": version.number, "id": version.schema_id, **self._of_id(version.schema_id, "")}

    def _of_id(self, schema_id: int, asked: str) -> Mapping[str, Any]:
        """Returns a schema. As Confluent's registry, it leaves out the type of Avro."""
        if schema_id not in self._schemas:
            raise RefusedError(404, 40403, f"Schema {asked} not found")
        schema = self._schemas[schema_id]
        shown = {name: value for name, value in schema.items() if (name, value) != ("schemaType", "AVRO")}
        return {**shown, "guid": _guid(self._content(schema))}

    def _content(self, body: Mapping[str, Any]) -> str:
        """Returns a text that equal schemas share. Raises RefusedError for a schema that is not valid."""
        text, kind = body.get("schema"), body.get("schemaType") or "AVRO"
        if kind not in KINDS:
            raise RefusedError(422, 422, f"Invalid schema type {kind}")
        if not isinstance(text, str) or not text.strip():
            raise RefusedError(422, 42201, "Invalid schema: it is empty")
        references = body.get("references") or []
        for reference in references if isinstance(references, list) else [references]:
            try:
                self._version(reference["subject"], str(reference["version"]), deleted=True)
            except (RefusedError, KeyError, TypeError):
                raise RefusedError(422, 42201, f"Invalid schema: no schema for the reference {reference}") from None
        try:
            check_schema(_schema_text(body), self._text_of)
        except SchemaError as error:
            raise RefusedError(422, 42201, f"Invalid schema: {error.message}") from None
        if kind != "PROTOBUF":
            text = json.dumps(json.loads(text))
        return json.dumps([kind, text, references, body.get("metadata"), body.get("ruleSet")])

    def _text_of(self, reference: SchemaReference) -> SchemaText:
        version = self._version(reference.subject, str(reference.version), deleted=True)
        return _schema_text(self._schemas[version.schema_id])

    def _serialized(self, schema: Mapping[str, Any]) -> str:
        """Returns the descriptor of a Protobuf schema in base64; the text of another schema."""
        content = self._content(schema)
        if content not in self._descriptors:
            try:
                self._descriptors[content] = serialized(_schema_text(schema), self._text_of)
            except SchemaError as error:
                raise RefusedError(422, 42201, f"Invalid schema: {error.message}") from None
            except InstallationError as error:
                raise RefusedError(501, 501, f"format=serialized: {error.message}") from None
        return self._descriptors[content]

    # Compatibility

    def _checked(self, subject: str, body: Mapping[str, Any], versions: list[_Version]) -> Mapping[str, Any]:
        self._content(body)
        messages = self._misfits(subject, body, versions)
        return {"is_compatible": not messages, "messages": messages}

    def _misfits(self, subject: str, body: Mapping[str, Any], versions: list[_Version]) -> list[str]:
        level = self._levels.get(subject, self._level)
        is_avro = (body.get("schemaType") or "AVRO") == "AVRO"
        found: list[str] = []
        for version in reversed(versions if level.endswith("_TRANSITIVE") else versions[-1:]):
            old = self._schemas[version.schema_id]
            if is_avro is not ((old.get("schemaType") or "AVRO") == "AVRO") and level != "NONE":
                found.append(f"version {version.number} has another type of schema")
            if not is_avro or found:
                continue
            one, other = json.loads(body["schema"]), json.loads(old["schema"])
            if level.startswith(("BACKWARD", "FULL")):
                found += misfits(one, other)
            if level.startswith(("FORWARD", "FULL")):
                found += misfits(other, one)
        return found


def _schema_text(body: Mapping[str, Any]) -> SchemaText:
    """Returns a schema that was sent. Its references exist."""
    references = [SchemaReference(str(one.get("name")), one["subject"], one["version"]) for one in body.get("references") or []]
    return SchemaText(body.get("schemaType") or "AVRO", body["schema"], tuple(references))


def _number(text: str) -> int:
    """Returns the id in a path; 0, which no schema has, for other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _level(body: Mapping[str, Any]) -> str:
    level = body.get("compatibility")
    if level not in LEVELS:
        raise RefusedError(422, 42203, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
    return str(level)


def _guid(content: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, content))
