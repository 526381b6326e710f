from __future__ import annotations

import logging
import pickle
from dataclasses import replace

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.option import HARMLESS, REFUSED
from spark_kafka_sink.options.sink_options import sink_options, warn_once
from tests.every import every

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


@pytest.fixture(autouse=True)
def nothing_was_warned_of() -> None:
    """Each warning is given once a process, and other tests have been here."""
    warn_once.cache_clear()


def refused(**options: str) -> str:
    with pytest.raises(OptionError) as caught:
        sink_options({**SERVERS, **{name.replace("__", "."): value for name, value in options.items()}})
    return str(caught.value)


def test_kafka_options_become_the_producers_settings() -> None:
    options = sink_options({**SERVERS, "kafka.linger.ms": "7", "kafka.compression.type": "LZ4", "topic": "events"})
    assert options.producer.bootstrap_servers == ("localhost:9092",)
    assert options.producer.linger_ms == 7
    assert options.producer.compression_type == "lz4"
    assert options.topic == "events"


def test_a_batch_lingers_for_a_second_in_a_task_and_never_longer_than_the_delivery_timeout_allows() -> None:
    assert sink_options(SERVERS).producer.linger_ms == 1000
    short = sink_options({**SERVERS, "kafka.request.timeout.ms": "400", "kafka.delivery.timeout.ms": "500"})
    assert short.producer.linger_ms == 100
    slow = sink_options({**SERVERS, "kafka.request.timeout.ms": "120000"})
    assert (slow.producer.linger_ms, slow.producer.delivery_timeout_ms) == (1000, 121_000)


def test_keys_are_taken_in_any_case() -> None:
    assert sink_options({"KAFKA.Bootstrap.Servers": "a:1", "Topic": "T"}).topic == "T"


def test_one_option_in_two_cases_is_refused() -> None:
    assert "option topic: is set twice" in refused(Topic="a", topic="b")


@pytest.mark.parametrize("name", ["path", "checkpointLocation", "queryName", "asyncProgressTrackingEnabled"])
def test_options_that_spark_adds_itself_are_fine(name: str) -> None:
    found = sink_options({**SERVERS, name: "x"})
    assert replace(found, query_name="") == sink_options(SERVERS)
    assert found.query_name == ("x" if name == "queryName" else "")


@pytest.mark.parametrize("value", ["true", "TRUE", True])
def test_headers_are_always_included_so_the_option_of_sparks_own_sink_may_say_so(value: object) -> None:
    assert sink_options({**SERVERS, "includeHeaders": value}) == sink_options(SERVERS)


def test_headers_are_left_out_by_dropping_their_column() -> None:
    text = refused(includeHeaders="false")
    assert text.startswith("[OPTION] option includeHeaders: 'false' is not supported")
    assert text.endswith("drop the column to write no headers")


def test_settings_are_hashable_and_pickle() -> None:
    options = sink_options({**SERVERS, "topic": "t"})
    assert {options: 1}[pickle.loads(pickle.dumps(options))] == 1


def test_missing_servers_are_named_as_the_user_writes_them() -> None:
    with pytest.raises(OptionError, match=r"^\[OPTION\] option kafka.bootstrap.servers is required"):
        sink_options({"topic": "t"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("topics", "topic"),
        ("delivery.garantee", "delivery.guarantee"),
        ("linger.ms", "kafka.linger.ms"),
        ("sasl.jaas.config", "kafka.sasl.jaas.config"),
        ("kafka.lingr.ms", "kafka.linger.ms"),
        ("kafka.transactional.ids", "kafka.transactional.id"),
        ("schema.registery.url", "schema.registry.url"),
    ],
)
def test_an_unknown_option_names_the_nearest_known_one(name: str, meant: str) -> None:
    assert f"unknown option {name}; did you mean {meant}?" in refused(**{name: "x"})


def test_what_a_schema_is_needs_the_part_of_the_record() -> None:
    found = refused(**{"schema.references": "[]"})
    assert "unknown option schema.references: use value.schema.references, or key.schema.references" in found


@pytest.mark.parametrize("prefix", ["", "kafka."])
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("queue.buffering.max.ms", "use kafka.linger.ms"),
        ("compression.level", "use kafka.compression.gzip.level, kafka.compression.lz4.level or kafka.compression.zstd.level"),
    ],
)
def test_an_option_of_another_client_names_what_to_use_here(prefix: str, name: str, meant: str) -> None:
    text = refused(**{f"{prefix}{name}": "x"})
    assert f"unknown option {prefix}{name}; " in text
    assert text.endswith(meant)


@pytest.mark.parametrize("name", [*REFUSED, "sasl.oauthbearer.assertion.file", "sasl.login.callback.handler.class"])
def test_an_option_of_javas_producer_that_matters_is_refused(name: str) -> None:
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "OAUTHBEARER"}
    assert f"option kafka.{name}: " in refused(**login, **{f"kafka.{name}": "x"})


@pytest.mark.parametrize("name", [*REFUSED, "sasl.jaas.config", "ssl.keystore.key", "sasl.pasword", "password"])
def test_no_value_of_a_refused_option_is_ever_printed(name: str) -> None:
    login = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
    assert "hunter2" not in refused(**login, **{f"kafka.{name}": "hunter2"})


@pytest.mark.parametrize("name", HARMLESS)
def test_an_option_of_javas_producer_that_changes_nothing_here_is_ignored_with_one_warning(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        assert sink_options({**SERVERS, f"kafka.{name}": "secret"}) == sink_options(SERVERS)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert f"kafka.{name} is ignored" in caplog.text
    assert "secret" not in caplog.text


def test_options_of_security_are_the_producers() -> None:
    options = sink_options(
        {
            **SERVERS,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": 'kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule required username="u"'
            ' password="hunter2";',
            "kafka.ssl.ca.location": "${env:NOT_THERE_YET}",
        }
    )
    security = options.producer.security
    assert (security.security_protocol, security.sasl_mechanism) == ("SASL_SSL", "PLAIN")
    assert security.ssl_ca_location == "${env:NOT_THERE_YET}"
    assert "hunter2" not in repr(options)
    assert pickle.loads(pickle.dumps(options)) == options


@every("name, value, text", [("retries", 0, "any passing error"), ("max.in.flight.requests.per.connection", 6, "reordered")])
def test_what_turns_idempotence_off_is_said(name: str, value: int, text: str, caplog: pytest.LogCaptureFixture) -> None:
    warn_once.cache_clear()
    caplog.clear()
    given = {"kafka.bootstrap.servers": "localhost:9092", f"kafka.{name}": value}
    sink_options({**given, "delivery.guarantee": "none"})
    sink_options({**given, "kafka.enable.idempotence": "false"})
    assert not caplog.records
    sink_options(given)
    assert f"option kafka.{name}={value}: it turns idempotence off, and" in caplog.text
    assert text in caplog.text


def test_what_clouds_tell_people_to_paste_is_taken(caplog: pytest.LogCaptureFixture) -> None:
    # Confluent Cloud's settings for clients, and Microsoft's for Spark at Event Hubs, have a consumer's timeout in them.
    pasted = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required username='u' password='p';",
        "kafka.client.dns.lookup": "use_all_dns_ips",
        "kafka.session.timeout.ms": "45000",
        "kafka.acks": "all",
        "kafka.client.id": "ccloud-python-client-1",
    }
    assert sink_options({**SERVERS, **pasted}).producer.security.uses_tls
    assert "option kafka.session.timeout.ms is ignored: only consumers have it" in caplog.text


def test_a_provider_of_secrets_may_have_capitals_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    # Spark makes the names of options lower-case, and leaves values as they are.
    monkeypatch.setenv("WORD", "hunter2")
    options = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "${fromEnv:WORD}",
        "kafka.config.providers": "fromEnv",
        "kafka.config.providers.fromEnv.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
        "kafka.config.providers.fromEnv.param.allowlist.pattern": "WORD",
    }
    password = sink_options({**SERVERS, **options}).producer.security.sasl_password
    assert password is not None
    assert password.reveal() == "hunter2"


def test_errors_of_security_name_the_option_as_it_is_written() -> None:
    assert refused(**{"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}).startswith(
        "[OPTION] option kafka.sasl.username: sasl.mechanism=PLAIN requires"
    )
    assert "option kafka.linger.ms: ${env:NOT_THERE}: environment variable NOT_THERE is not set" in refused(
        **{"kafka.linger.ms": "${env:NOT_THERE}"}
    )


def test_what_is_not_safe_is_warned_of_once_a_process(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        sink_options({**SERVERS, "kafka.ssl.ca.location": "x"})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "security.protocol is PLAINTEXT, so these options are ignored: ssl.ca.location" in caplog.text


@pytest.mark.parametrize("topic", ["", ".", "..", "a b", "a/b", "x" * 250, "é"])
def test_a_topic_that_kafka_could_never_have_is_refused(topic: str) -> None:
    assert "option topic: " in refused(topic=topic)


@pytest.mark.parametrize(
    ("given", "place"),
    [
        ("/data/a", "/data/a"),
        ("file:/data/a", "/data/a"),
        ("file:///data/a/", "/data/a"),
        ("s3a://bucket/a", "s3a://bucket/a"),
        ("s3a://key:password@bucket/a", "s3a://bucket/a"),
        ("s3a://key:pass/word@bucket/a", "s3a://bucket/a"),
        ("s3a://key:12/word@bucket/a", "s3a://bucket/a"),
        ("abfss://prod@account.dfs.core.windows.net/a/", "abfss://prod@account.dfs.core.windows.net/a"),
        ("hdfs://name:9000/a/b@c", "hdfs://name:9000/a/b@c"),
    ],
)
def test_a_checkpoint_has_one_name_and_no_password(given: str, place: str) -> None:
    options = sink_options({**SERVERS, "delivery.guarantee": "exactly-once", "checkpointLocation": given})
    assert options.exactly_once is not None
    assert options.exactly_once.checkpoint == place


LIMITS = ["max.bytes.per.second", "max.records.per.second"]


@pytest.mark.parametrize("name", LIMITS)
def test_a_rate_limit_becomes_a_setting_of_the_producer(name: str) -> None:
    config = sink_options({**SERVERS, name.upper(): "1000"}).producer
    assert config.settings()[name] == 1000
    assert {each: config.settings()[each] for each in LIMITS if each != name} == dict.fromkeys(set(LIMITS) - {name})


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "fast", "", "1e6", "10 MB"])
@pytest.mark.parametrize("name", LIMITS)
def test_a_rate_limit_is_a_whole_number_above_zero(name: str, value: str) -> None:
    assert f"[OPTION] option {name}: {value!r} is not a whole number from 1 " in refused(**{name: value})


@pytest.mark.parametrize("name", LIMITS)
def test_a_rate_limit_has_no_prefix(name: str) -> None:
    text = refused(**{f"kafka.{name}": "1000"})
    assert text == f"[OPTION] option kafka.{name}: write it without kafka., because it is an option of the sink: {name}"


@pytest.mark.parametrize(
    ("name", "limit", "told"),
    [
        ("max.records.per.second", 11, "11 lets a task write 9,900 records before its transaction times out"),
        ("max.bytes.per.second", 1000, "1000 lets a task write 900,000 bytes before its transaction times out"),
        ("max.records.per.second", 12, None),
        ("max.bytes.per.second", 1200, None),
    ],
)
def test_a_limit_under_which_no_task_ends_before_its_transaction_does_is_warned_of(
    name: str, limit: int, told: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    sink_options({**SERVERS, name: str(limit)})
    assert caplog.messages == []
    sink_options({**SERVERS, name: str(limit), "delivery.guarantee": "exactly-once"})
    advice = " (kafka.transaction.timeout.ms, 900 s). A task with more fails: raise one of the two"
    assert caplog.messages == ([] if told is None else [f"option {name}: {told}{advice}"])
