"""No error, log, metric or config shows a secret, whether a producer works or fails. On Spark: tests/spark/test_secrets.py."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Iterator

import pytest

from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer.producer import Producer
from tests.planted_secrets import FAILING, MARK, PLANTED, SECRET, USER, USER_AND_PASSWORD, VARIABLE


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Brokers that want a login."""
    config = BrokerConfig(sasl_users={USER: SECRET}, connection_failed_authentication_delay_ms=10)
    with EmbeddedBroker(config=config) as broker:
        broker.create_topic("t")
        yield broker.bootstrap_servers


@pytest.mark.fault("security", "no secret in logs, repr, exceptions, Spark's UI and event log")
@pytest.mark.parametrize(
    "options",
    [PLANTED, USER_AND_PASSWORD, {**USER_AND_PASSWORD, "sasl.password": f"${{env:{VARIABLE}}}"}],
    ids=["jaas", "password", "reference"],
)
def test_a_producer_that_works_shows_none(
    servers: str, options: dict[str, str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    with caplog.at_level(logging.DEBUG), Producer({"bootstrap.servers": servers, **options}) as producer:
        assert producer.send("t", value=b"x").result(60).partition == 0
        shown = [repr(producer), repr(producer.config), repr(producer.config.settings()), repr(producer.metrics())]
    assert MARK not in "".join(shown)
    assert MARK not in caplog.text


@pytest.mark.fault("security", "no secret in logs, repr, exceptions, Spark's UI and event log")
@pytest.mark.parametrize("name", FAILING)
def test_a_producer_that_fails_shows_none(servers: str, name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        error = failure({"bootstrap.servers": servers, **FAILING[name]})
    assert isinstance(error, KafkaSinkError)
    assert MARK not in caplog.text
    assert MARK not in "".join(traceback.format_exception(error))
    for each in chain(error):
        assert MARK not in f"{each} {each!r} {each.args}"
    copied = pickle.loads(pickle.dumps(error))
    assert MARK.encode() not in pickle.dumps(error)
    assert MARK not in f"{error.facts} {copied.facts}"


def failure(settings: dict[str, str]) -> BaseException | None:
    try:
        with Producer(settings) as producer:
            producer.send("t", value=b"x").result(60)
    except KafkaSinkError as error:
        return error
    return None


def chain(error: BaseException) -> Iterator[BaseException]:
    """Returns the error and its causes, those too that a traceback leaves out."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__ or found.__context__
