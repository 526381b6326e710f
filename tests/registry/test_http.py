"""Registries that fail: each failure is one clear error, and what may pass is tried again."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from spark_kafka_sink.errors import DeadlineError, RegistryError, RegistryTimeoutError, SchemaIncompatibleError, UsageError
from spark_kafka_sink.options.registry_options import registry_config
from spark_kafka_sink.registry.http import MAX_ANSWER_BYTES, Timing
from spark_kafka_sink.registry.registry_client import RegistryClient, SchemaText
from tests.every import every
from tests.kafka.ports import free_ports
from tests.registry.stand_in import JSON, Answer, Asked, StandIn
from tests.security.sasl.http_servers import raw_server, silent

pytestmark = pytest.mark.usefixtures("no_proxy")

SCHEMA = SchemaText("AVRO", '"int"')
HTML = b"<html><body>Sign in with hunter2</body></html>"
AS_HTML = {"Content-Type": "text/html; charset=utf-8"}
LATEST = {"subject": "s", "version": 1, "id": 5, "schema": '"int"'}
NOTHING: Mapping[str, str] = {}
EPOCH = 1_700_000_000.0


class Pauses:
    """A clock that only sleeping moves, and a chance that is always the highest."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    @property
    def timing(self) -> Timing:
        return Timing(now=lambda: sum(self.slept), sleep=self.slept.append, chance=lambda: 1.0, wall=lambda: EPOCH)


def client(url: str, pauses: Pauses | None = None, call_s: float = 120.0, options: Mapping[str, str] = NOTHING) -> RegistryClient:
    config = registry_config({"schema.registry.url": url, **options})
    return RegistryClient(config, call_s, (pauses or Pauses()).timing)


def refused(url: str, pauses: Pauses | None = None, call_s: float = 120.0, options: Mapping[str, str] = NOTHING) -> RegistryError:
    """Returns the error of a call. It pickles, and shows nothing of the page in `HTML`."""
    with client(url, pauses, call_s, options) as registry, pytest.raises(RegistryError) as error:
        registry.latest("s")
    told = error.value
    assert told.message.startswith("could not get the latest schema of subject 's': ")
    assert told.facts["subject"] == "s"
    assert "hunter2" not in str(told) + repr(told) + repr(told.facts)
    copy = pickle.loads(pickle.dumps(told))
    assert (type(copy), str(copy), copy.facts) == (type(told), str(told), told.facts)
    return told


# Answers that another try would not change


LOGIN = "Hunter2-Secret"


@pytest.mark.fault("schema registry", "a registry, proxy or token endpoint that repeats a password")
@every(
    "answer, call",
    [
        (
            Answer(body={"is_compatible": False, "messages": [f"wrote\x1b[2J {LOGIN}"]}),
            lambda one: one.misfits("s", SCHEMA),
        ),
        (
            Answer(body={**LATEST, "ruleSet": {"domainRules": [{"name": f"a\x1b {LOGIN}", "type": LOGIN}]}}),
            lambda one: one.latest("s").rules,
        ),
        (Answer(body={**LATEST, "ruleSet": {f"{LOGIN}\x1bRules": 1}}), lambda one: one.latest("s").rules),
        (Answer(body={**LATEST, "subject": f"{LOGIN}\x1b"}), lambda one: one.latest("s").subject),
        (Answer(body=b"page", headers={"Content-Type": f"text/{LOGIN}"}), lambda one: one.latest("s")),
        (
            Answer(body={**LATEST, "references": [{"name": "a", "subject": f"\x1b{LOGIN}", "version": 1}]}),
            lambda one: one.references(one.latest("s").schema),
        ),
        (
            Answer(body={**LATEST, "references": [{"name": LOGIN, "subject": f"a{number}", "version": 1} for number in (1, 2)]}),
            lambda one: one.references(one.latest("s").schema),
        ),
    ],
)
def test_what_a_registry_echoes_in_a_success_shows_no_login(answer: Answer, call: Callable[[Any], object]) -> None:
    with StandIn() as stand_in:
        stand_in.fail(answer, *([Answer(body=LATEST)] if "'a1'" in str(answer.body) else []))
        with client(stand_in.url, options={"schema.registry.basic.auth.user.info": f"alice:{LOGIN}"}) as registry:
            try:
                told = str(call(registry))
            except RegistryError as error:
                told = f"{error} {error!r}"
        assert LOGIN.lower() not in told.lower()
        assert "\x1b" not in told


def test_a_conflict_is_an_incompatible_schema_only_where_one_is_registered(stand_in: StandIn) -> None:
    conflict = Answer(409, {"error_code": 409, "message": "busy"})
    other = Answer(409, {"error_code": 40955, "message": "busy"})
    stand_in.fail(conflict, other, conflict)
    with client(stand_in.url) as registry:
        with pytest.raises(RegistryError, match="busy") as asked:
            registry.latest("s")
        with pytest.raises(RegistryError, match="busy") as sent:
            registry.register("s", SCHEMA)
        assert [type(asked.value), type(sent.value)] == [RegistryError, RegistryError]
        with pytest.raises(SchemaIncompatibleError, match=r"could not register a schema for subject 's': .* HTTP 409: busy"):
            registry.register("s", SCHEMA)


@pytest.mark.fault("schema registry", "401, 403, 404, 407, 409, 413, 422")
@every(
    "answer, words, code",
    [
        (Answer(401), "returned HTTP 401. It requires a login: set schema.registry.basic.auth.user.info or", None),
        (Answer(401, HTML, AS_HTML), "returned HTTP 401 (text/html). It requires a login", None),
        (Answer(403, {"error_code": 40301, "message": "No!"}), "HTTP 403, error 40301: No!. The login lacks a right", 40301),
        (Answer(404, b""), "returned HTTP 404. Check the path of schema.registry.url; that of Apicurio", None),
        (Answer(404, HTML, AS_HTML), "returned HTTP 404 (text/html). Check the path of schema.registry.url", None),
        (Answer(404, {"error_code": 40409, "message": "no mode"}), "returned HTTP 404, error 40409: no mode", 40409),
        (Answer(407), "returned HTTP 407. The proxy requires a login: set schema.registry.proxy", None),
        (Answer(413, HTML, AS_HTML), "returned HTTP 413 (text/html). The schema is too large", None),
        (Answer(422, {"error_code": 42201, "message": "bad\nschema"}), "returned HTTP 422, error 42201: bad schema", 42201),
        (Answer(422, {"error_code": "42201", "message": ["x"]}), "returned HTTP 422", None),
        (Answer(418, [1]), "returned HTTP 418", None),
        (Answer(501, b'{"error_code": 1', {"Content-Type": JSON}), "returned HTTP 501", None),
        (Answer(200, HTML, AS_HTML), "returned HTTP 200 with text/html instead of JSON. Check schema.registry.url", None),
        (Answer(200, HTML, {"Content-Type": ""}), "with no known content type instead of JSON", None),
        (Answer(200, json.dumps(LATEST).encode()[:-9]), "returned HTTP 200 with invalid JSON", None),
        (Answer(200, b"[" * 100_000), "returned HTTP 200 with invalid JSON", None),
        (Answer(200, b"\xff\xfe"), "returned HTTP 200 with invalid JSON", None),
        (
            Answer(302, b"", {"Location": "http://hunter2@a/b?hunter2"}),
            "redirects (HTTP 302) to a/b, which is not followed",
            None,
        ),
        (Answer(308), "redirects (HTTP 308), which is not followed", None),
    ],
)
def test_what_another_try_would_not_change_is_an_error_at_once(answer: Answer, words: str, code: int | None) -> None:
    with StandIn() as stand_in:
        pauses = Pauses()
        stand_in.fail(*[answer] * 4)

        error = refused(stand_in.url, pauses)

        assert f"the schema registry {stand_in.url} {words}" in error.message or words in error.message
        assert (error.facts["status"], error.facts.get("error_code")) == (answer.status, code)
        assert error.facts["url"] == stand_in.url
        assert (pauses.slept, len(stand_in.requests)) == ([], 1)


@pytest.mark.fault("schema registry", "401, 403, 404, 407, 409, 413, 422")
@every("status, code", [(409, 40901), (409, 409), (422, 40901)])
def test_an_incompatible_schema_is_an_error_of_its_own(status: int, code: int) -> None:
    with StandIn() as stand_in:
        stand_in.fail(Answer(status, {"error_code": code, "message": "x" * 5000}))
        with client(stand_in.url) as registry, pytest.raises(SchemaIncompatibleError) as error:
            registry.register("s", SCHEMA)

        assert error.value.code == "SCHEMA_INCOMPATIBLE"
        assert (error.value.facts["error_code"], error.value.facts["status"]) == (code, status)
        assert 2000 < len(error.value.message) < 2200


@pytest.mark.fault("schema registry", "redirect loop")
def test_a_loop_of_redirections_is_left_at_once(stand_in: StandIn) -> None:
    def again(asked: Asked) -> Answer:
        return Answer(307, b"", {"Location": asked.path})

    stand_in.fail(*[again] * 10)

    assert "redirects (HTTP 307) to /subjects/s/versions/latest" in refused(stand_in.url).message
    assert len(stand_in.requests) == 1


# Answers that may pass


@pytest.mark.fault("schema registry", "408, 429 with Retry-After, 500, 502, 503, 504")
@every("status", [408, 429, 500, 502, 503, 504])
def test_what_may_pass_is_tried_again(status: int) -> None:
    with StandIn() as stand_in:
        pauses = Pauses()
        stand_in.fail(*[Answer(status, HTML, AS_HTML)] * 3, Answer(body=LATEST))
        with client(stand_in.url, pauses) as registry:
            assert registry.latest("s") is not None

        assert pauses.slept == [1.0, 2.0, 4.0]


def test_retries_end_with_the_last_reason(stand_in: StandIn) -> None:
    pauses = Pauses()
    stand_in.fail(*[Answer(500, {"error_code": 50002, "message": "slow store"})] * 9)
    options = {"schema.registry.max.retries": "5", "schema.registry.retries.max.wait.ms": "5000"}

    error = refused(stand_in.url, pauses, options=options)

    assert error.message.endswith(f"{stand_in.url} returned HTTP 500, error 50002: slow store (6 tries)")
    assert (error.facts["status"], error.facts["error_code"]) == (500, 50002)
    assert pauses.slept == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert not isinstance(error, DeadlineError)


@pytest.mark.fault("schema registry", "408, 429 with Retry-After, 500, 502, 503, 504")
@every(
    "value, pause_s",
    [
        ("7", 7.0),
        ("0", 1.0),
        ("3600", 20.0),
        ("Tue, 14 Nov 2023 22:13:35 GMT", 15.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 1.0),
        ("soon", 1.0),
        ("-5", 1.0),
        ("", 1.0),
    ],
)
def test_the_pause_that_a_registry_asks_for_is_kept_up_to_the_longest(value: str, pause_s: float) -> None:
    with StandIn() as stand_in:
        pauses = Pauses()
        stand_in.fail(Answer(429, b"", {"Retry-After": value}), Answer(body=LATEST))
        with client(stand_in.url, pauses) as registry:
            registry.latest("s")

        assert pauses.slept == [pause_s]


def test_pauses_are_random(stand_in: StandIn) -> None:
    slept = list[float]()
    chances = iter((0.0, 0.25, 0.5))
    stand_in.fail(*[Answer(503)] * 3, Answer(body=LATEST))
    config = registry_config({"schema.registry.url": stand_in.url, "schema.registry.retries.wait.ms": "100"})
    with RegistryClient(config, timing=Timing(sleep=slept.append, chance=lambda: next(chances))) as registry:
        registry.latest("s")

    assert slept == [0.0, 0.05, 0.2]


def test_retries_are_logged_and_hold_no_secret(stand_in: StandIn, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    stand_in.fail(Answer(503, {"error_code": 50301, "message": "busy, hunter2"}), Answer(body=LATEST))
    with client(stand_in.url, options={"basic.auth.user.info": "alice:hunter2"}) as registry:
        registry.latest("s")

    assert "retrying to get the latest schema of subject 's' in 1.0 s" in caplog.text
    assert "returned HTTP 503, error 50301\n" in caplog.text
    assert "busy" not in caplog.text


# Time limits


def test_calls_that_share_a_deadline_end_together(stand_in: StandIn) -> None:
    pauses = Pauses()
    stand_in.fail(Answer(503), Answer(body=LATEST), Answer(503), Answer(503))
    with client(stand_in.url, pauses) as registry:
        limited = registry.within(3.0)
        assert limited.latest("s") is not None  # after a pause of 1 s
        with pytest.raises(RegistryTimeoutError, match=r"subject 's': .* \(2 tries; the time limit is 3 s\)"):
            limited.latest("s")  # pauses of 1 s and 2 s would be longer than what is left
        assert sum(pauses.slept) == 2.0
        pauses.slept.append(1.0)
        asked = len(stand_in.requests)
        with pytest.raises(RegistryTimeoutError, match="the time limit of 3 s was used up by earlier requests"):
            limited.by_id(5)
        assert len(stand_in.requests) == asked
        assert registry.latest("s") is None  # this one has no shared deadline
        registry.close()
        with pytest.raises(UsageError, match="is closed"):
            limited.latest("s")


@pytest.mark.fault("schema registry", "down, slow, silent, a host that does not exist")
def test_a_registry_that_says_nothing_times_out() -> None:
    with raw_server(silent) as url:
        error = refused(url, options={"schema.registry.request.timeout.ms": "50", "schema.registry.max.retries": "1"})

    assert isinstance(error, RegistryTimeoutError)
    assert isinstance(error, DeadlineError)
    assert error.message.endswith(f"the schema registry {url} did not respond in time (2 tries). Check schema.registry.url")


@pytest.mark.fault("schema registry", "down, slow, silent, a host that does not exist")
@pytest.mark.parametrize("first", [b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n"])
def test_a_slow_registry_cannot_stretch_the_time_limit(first: bytes) -> None:
    def drip(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(first)
        while True:
            connection.sendall(b"x")
            time.sleep(0.01)

    with raw_server(drip) as url:
        error = refused(url, options={"schema.registry.request.timeout.ms": "100", "schema.registry.max.retries": "0"})

    assert isinstance(error, RegistryTimeoutError)


@pytest.mark.fault("schema registry", "down, slow, silent, a host that does not exist")
def test_a_call_ends_at_its_own_deadline(stand_in: StandIn) -> None:
    pauses = Pauses()
    stand_in.fail(*[Answer(503)] * 99)

    error = refused(stand_in.url, pauses, 10.0, options={"schema.registry.max.retries": "99"})

    assert isinstance(error, RegistryTimeoutError)
    assert error.message.endswith("returned HTTP 503 (4 tries; the time limit is 10 s)")
    assert pauses.slept == [1.0, 2.0, 4.0]


# No HTTP, or too much of it


def answering(data: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass

    return serve


@pytest.mark.fault("schema registry", "HTML, truncated JSON, wrong types, a huge answer, no HTTP")
@every(
    "data, words",
    [
        (b"", "could not be reached: Remote end closed connection without response"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "sent no valid HTTP response: BadStatusLine"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "sent no valid HTTP response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhalf", "sent no valid HTTP response: the response ended 46 bytes early"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "sent no valid HTTP response"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (MAX_ANSWER_BYTES + 1), "the response has more than 16,777,216 bytes"),
    ],
)
def test_answers_that_are_none(data: bytes, words: str) -> None:
    with raw_server(answering(data)) as url:
        error = refused(url, options={"schema.registry.max.retries": "0"})

    assert words in error.message
    assert error.message.endswith("(1 try). Check schema.registry.url")


def test_a_large_schema_is_read(stand_in: StandIn) -> None:
    text = json.dumps({"type": "record", "name": "R", "doc": "x" * 2_000_000, "fields": []})
    with client(stand_in.url) as registry:
        registry.register("s", SchemaText("AVRO", text))
        latest = registry.latest("s")

    assert latest is not None
    assert latest.schema.text == text


@pytest.mark.fault("schema registry", "down, slow, silent, a host that does not exist")
def test_a_registry_that_is_down_is_asked_again() -> None:
    pauses = Pauses()
    (port,) = free_ports(1)

    error = refused(f"http://127.0.0.1:{port}", pauses)

    assert error.message.endswith(
        f"http://127.0.0.1:{port} could not be reached: Connection refused (4 tries). Check schema.registry.url"
    )
    assert error.facts["url"] == f"http://127.0.0.1:{port}"
    assert pauses.slept == [1.0, 2.0, 4.0]
    assert not isinstance(error, DeadlineError)


@pytest.mark.fault("schema registry", "down, slow, silent, a host that does not exist")
def test_a_host_that_does_not_exist() -> None:
    error = refused("http://no-such-host.invalid", options={"schema.registry.max.retries": "0"})

    assert "the schema registry http://no-such-host.invalid could not be reached: " in error.message


# Several URLs


@pytest.mark.fault("schema registry", "several URLs, the first one dead")
def test_the_next_url_is_tried_at_once_and_kept(stand_in: StandIn) -> None:
    pauses = Pauses()
    (port,) = free_ports(1)
    with client(f"http://127.0.0.1:{port},{stand_in.url}/", pauses) as registry:
        registry.register("s", SCHEMA)
        asked = list[str]()
        with socket.create_server(("127.0.0.1", port)) as back:
            back.settimeout(0)
            registry.latest("s")
            with pytest.raises(BlockingIOError):
                asked.append(str(back.accept()))

    assert pauses.slept == []
    assert [asked.path for asked in stand_in.requests] == ["/subjects/s/versions?normalize=false", "/subjects/s/versions/latest"]


def test_a_url_that_fails_gives_way_and_is_tried_again_after_the_others(stand_in: StandIn) -> None:
    pauses = Pauses()
    with StandIn() as other:
        other.fail(Answer(503), Answer(body=LATEST), Answer(503))
        stand_in.fail(Answer(429), Answer(body=LATEST))
        with client(f"{other.url},{stand_in.url}", pauses) as registry:
            registry.latest("s")
            registry.latest("s")

    assert (len(other.requests), len(stand_in.requests)) == (3, 2)
    assert pauses.slept == [1.0]


def test_an_answer_of_one_url_is_final(stand_in: StandIn) -> None:
    with StandIn() as other:
        other.fail(Answer(401))
        assert refused(f"{other.url},{stand_in.url}").facts["url"] == other.url

    assert stand_in.requests == []


@pytest.mark.fault("schema registry", "several URLs, the first one dead")
def test_an_error_names_every_url_with_its_reason(stand_in: StandIn) -> None:
    (port,) = free_ports(1)
    stand_in.fail(*[Answer(502, HTML, AS_HTML)] * 2)

    error = refused(f"http://127.0.0.1:{port},{stand_in.url}", options={"schema.registry.max.retries": "1"})

    assert error.message.endswith(
        f"the schema registry http://127.0.0.1:{port} could not be reached: Connection refused; "
        f"the schema registry {stand_in.url} returned HTTP 502 (text/html) (2 tries)"
    )


def test_a_path_of_the_url_is_kept(stand_in: StandIn) -> None:
    stand_in.fail(Answer(body=LATEST))
    with client(f"{stand_in.url}/apis/ccompat/v7/") as registry:
        registry.latest("s")

    assert [asked.path for asked in stand_in.requests] == ["/apis/ccompat/v7/subjects/s/versions/latest"]


def test_threads_may_share_a_client(stand_in: StandIn) -> None:
    with client(stand_in.url) as registry, ThreadPoolExecutor(8) as pool:
        made: list[Any] = list(pool.map(lambda number: registry.register(f"s-{number % 4}", SCHEMA), range(40)))
        found = list(pool.map(lambda each: registry.by_id(each.schema_id), made))

    assert {each.schema_id for each in made} == {1}
    assert {each.schema for each in found} == {SCHEMA}
