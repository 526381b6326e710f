"""Options: Kafka's names and units, Java's defaults, clear refusals."""

from __future__ import annotations

import pickle
import re

import pytest

from spark_kafka_sink import errors
from spark_kafka_sink.errors import KafkaSinkError, OptionError
from spark_kafka_sink.options.option import LIBRDKAFKA_NAMES, REQUIRED, Option
from spark_kafka_sink.options.producer_options import OPTIONS, ProducerConfig, producer_config
from tests.every import every
from tests.golden_options import OPTIONS_TXT, java_options, run_java

JAVA = java_options()
SERVERS = {"bootstrap.servers": "a:1,[::1]:2"}


def config(**settings: object) -> ProducerConfig:
    return producer_config({**SERVERS, **{name.replace("_", "."): value for name, value in settings.items()}})


def test_defaults_are_those_of_the_table() -> None:
    assert config() == ProducerConfig(bootstrap_servers=("a:1", "[::1]:2"))


def test_values_may_be_text_as_spark_gives_them() -> None:
    assert config(linger_ms="7", enable_idempotence="TRUE", acks="all", compression_type="LZ4") == config(
        linger_ms=7, enable_idempotence=True, acks=-1, compression_type="lz4"
    )


def test_requests_keep_to_max_request_size_where_that_is_set_alone() -> None:
    assert config().produce_request_max_bytes == 4 * 2**20
    assert config(max_request_size=1_000_000).produce_request_max_bytes == 1_000_000
    assert config(max_request_size=1_000_000, produce_request_max_bytes=5).produce_request_max_bytes == 5


def test_equal_settings_are_equal_and_hash_alike() -> None:
    assert hash(config(linger_ms=1)) == hash(config(linger_ms="1"))


@every(
    "settings, said",
    [
        ({"batch.size": "many"}, "option batch.size: 'many' is not a whole number from 0 to 2147483647"),
        ({"batch.size": -1}, "option batch.size: -1 is not a whole number"),
        ({"linger.ms": True}, "option linger.ms: True is not a whole number"),
        ({"enable.idempotence": "yes"}, "is not one of true, false"),
        ({"compression.type": "brotli"}, "one of none, gzip, snappy, lz4, zstd"),
        ({"transactional.id": ""}, r"option transactional\.id: '' is not a non-empty string"),
        ({"acks": "2"}, "is not one of all, -1, 0, 1"),
        ({"bootstrap.servers": "localhost"}, "option bootstrap.servers: 'localhost' has no port: write localhost:9092$"),
        ({"bootstrap.servers": "a:1,[::1]"}, r"'\[::1\]' has no port: write \[::1\]:9092$"),
        ({"bootstrap.servers": ":9092"}, "is not a comma-separated list of host:port"),
        ({"bootstrap.servers": "a:99999"}, "is not a comma-separated list of host:port"),
        ({"bootstrap.servers": ""}, "is not a comma-separated list of host:port"),
        ({"client.id": 7}, "is not a string"),
        ({"batchsize": 1}, "unknown option batchsize; did you mean batch.size?"),
        ({"zzz": 1}, "unknown option zzz$"),
        ({"queue.buffering.max.ms": 5}, r"unknown option queue\.buffering\.max\.ms; use linger\.ms$"),
        ({"batch.num.messages": 5}, r"; use batch\.size, which is in bytes$"),
        ({"schema.regisry.url": "http://a"}, r"unknown option schema\.regisry\.url$"),
        ({"delivery.timeout.ms": 10}, "less than linger.ms [+] request.timeout.ms = 30005"),
        ({"enable.idempotence": "true", "acks": "1"}, "option acks: must be all with enable.idempotence=true"),
        ({"enable.idempotence": "true", "retries": 0}, "option retries"),
        ({"enable.idempotence": "true", "max.in.flight.requests.per.connection": 6}, "at most 5"),
    ],
)
def test_bad_settings_name_the_option_and_what_it_takes(settings: dict[str, object], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        producer_config({**SERVERS, **settings})


@every("name", LIBRDKAFKA_NAMES)
def test_what_replaces_an_option_of_librdkafka_exists(name: str) -> None:
    assert name not in OPTIONS
    replacements = re.findall(r"\{0\}([a-z0-9.]+)", LIBRDKAFKA_NAMES[name])
    assert replacements
    assert set(replacements) <= set(OPTIONS)


def test_a_protocol_in_front_of_a_server_is_passed_over() -> None:
    given = producer_config({"bootstrap.servers": "PLAINTEXT://a:1, SSL://[::1]:2"})
    assert given.bootstrap_servers == ("a:1", "[::1]:2")


def test_settings_are_a_mapping() -> None:
    with pytest.raises(OptionError, match="settings must be a mapping from option names to values, not str"):
        producer_config("localhost:9092")  # type: ignore[arg-type]


def test_the_servers_are_required() -> None:
    with pytest.raises(OptionError, match=r"bootstrap\.servers is required"):
        producer_config({})


@pytest.mark.parametrize("settings", [{"acks": "1"}, {"retries": 0}, {"max.in.flight.requests.per.connection": 6}])
def test_idempotence_that_was_not_asked_for_gives_way(settings: dict[str, object]) -> None:
    assert not producer_config({**SERVERS, **settings}).enable_idempotence


def test_a_delivery_timeout_that_was_not_set_makes_room_for_linger_and_request_timeout() -> None:
    assert config(request_timeout_ms=300_000).delivery_timeout_ms == 300_005


def in_javas_words(option: Option) -> str:
    return {REQUIRED: "required", None: "null"}.get(option.java) or option.kind.text(option.java)


# Java's default is an empty list, which its constructor refuses.
@every("name", [name for name in OPTIONS if name in JAVA and name != "bootstrap.servers"])
def test_what_is_called_javas_default_is_javas_default(name: str) -> None:
    assert in_javas_words(OPTIONS[name]) == JAVA[name].default


@every("name", [name for name in OPTIONS if name in JAVA and not OPTIONS[name].differs])
def test_numbers_begin_where_javas_do_unless_it_is_told_why_not(name: str) -> None:
    lowest = JAVA[name].lowest
    if lowest is not None:
        assert OPTIONS[name].parse(lowest) == lowest
        with pytest.raises(OptionError):
            OPTIONS[name].parse(lowest - 1)


@every("option", OPTIONS.values())
def test_another_default_than_javas_has_a_reason(option: Option) -> None:
    assert option.default == option.java or option.differs.endswith(".")


@every("option", OPTIONS.values())
def test_a_default_as_it_is_written_is_read_as_that_default(option: Option) -> None:
    if option.default not in (REQUIRED, None):
        assert option.parse(option.kind.text(option.default)) == option.default


@pytest.mark.whole("starts Java, whose golden file changes with its release only; the others here compare with that file")
@pytest.mark.java
def test_java_still_has_these_options() -> None:
    assert run_java() == OPTIONS_TXT.read_text()


def test_every_option_says_what_it_does() -> None:
    for option in OPTIONS.values():
        assert option.doc.endswith("."), option.name


ERRORS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KafkaSinkError)]


@every("kind", ERRORS)
def test_errors_begin_with_their_code_and_survive_pickling(kind: type[KafkaSinkError]) -> None:
    error = pickle.loads(pickle.dumps(kind("it broke", topic="t", partition=3)))
    assert str(error) == f"[{kind.code}] it broke"
    assert error.facts == {"topic": "t", "partition": 3}


def test_error_codes_are_distinct() -> None:
    branches = {errors.KafkaSinkError, errors.LocalError, errors.PeerError, errors.DeadlineError}
    codes = [kind.code for kind in ERRORS if kind not in branches]
    assert len(codes) == len(set(codes))
