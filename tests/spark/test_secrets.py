"""Nobody sees a secret: what Spark and this package show of writes with secrets in every option that can hold one."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import spark_kafka_sink as sks
from spark_kafka_sink.broker import BrokerConfig, EmbeddedBroker
from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.sink_options import sink_options
from tests.planted_secrets import FAILING, MARK, PLANTED, SECRET, USER, VARIABLE, VARIABLE_OF_LOGIN, registry_failing
from tests.registry.stand_in import StandIn
from tests.spark.secrets_program import kafka
from tests.spark.session import ROOT, setting, wait_for_listeners

pytestmark = [pytest.mark.spark, pytest.mark.timeout(400)]
OWN_SPARK = pytest.mark.whole("100 s: a Spark of its own, with all its logs; the test before has one write")

PROGRAM = Path(__file__).with_name("secrets_program.py")
USERS = BrokerConfig(sasl_users={USER: SECRET})
SEEN = ("*.seen", "events/**/*", "stream-*/checkpoint/**/*", "*.log")


def test_plans_hide_secrets_once_the_format_is_registered(spark: SparkSession) -> None:
    with setting(spark, "spark.sql.ui.explainMode", "extended"), EmbeddedBroker(config=USERS) as broker:
        broker.create_topic("events")
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events", **kafka(PLANTED)}
        spark.range(1).selectExpr("'x' AS value").write.format("kafka_sink").mode("append").options(**options).save()
    wait_for_listeners(spark)
    store: Any = spark._jsparkSession.sharedState().statusStore()
    plan = store.executionsList().last().physicalPlanDescription()
    assert "kafka.sasl.jaas.config=" in plan
    assert MARK not in plan


def test_nothing_that_spark_shows_has_the_registrys_login(spark: SparkSession, stand_in: StandIn) -> None:
    """The plan of a write that succeeds, and the error of one that does not."""
    stand_in.login = f"Basic {base64.b64encode(f'{USER}:{SECRET}'.encode()).decode()}"
    with setting(spark, "spark.sql.ui.explainMode", "extended"), EmbeddedBroker() as broker:
        broker.create_topic("events")
        options = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": "events",
            "value.format": "avro",
            "schema.registry.url": stand_in.url,
            "schema.registry.basic.auth.user.info": f"{USER}:{SECRET}",
        }
        writer = spark.range(1).write.format("kafka_sink").mode("append").options(**options)
        writer.save()
        with pytest.raises(PySparkException) as caught:
            writer.option("schema.registry.basic.auth.user.info", f"{USER}:{SECRET} and more").option("topic", "new").save()
        wrong = {**options, "schema.registry.basic.auth.user.inof": SECRET}
        with pytest.raises(OptionError) as misspelled:
            sks.publish(spark.range(1), options=wrong)
        tried = sks.foreach_batch(options)
    wait_for_listeners(spark)
    store: Any = spark._jsparkSession.sharedState().statusStore()
    plan = store.executionsList().last().physicalPlanDescription()
    assert "schema.registry.basic.auth.user.info=" in plan
    shown = f"{plan} {caught.value} {misspelled.value} {misspelled.value.facts} {tried!r} {sink_options(options)!r}"
    assert "[REGISTRY]" in shown
    assert MARK not in shown


@pytest.mark.skipif(tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 3), reason="Spark shows no local variables yet")
@pytest.mark.parametrize("mistake", [{"kafka.linger.mz": "1"}, {"kafka.max.request.size": "20"}])
def test_an_error_of_spark_that_shows_local_variables_shows_no_secret(spark: SparkSession, mistake: Mapping[str, str]) -> None:
    locals_are_shown = setting(spark, "spark.sql.execution.pyspark.udf.tracebackWithLocals.enabled", "true")
    with locals_are_shown, EmbeddedBroker(config=USERS) as broker, pytest.raises(PySparkException) as caught:
        broker.create_topic("events")
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "events", **kafka(PLANTED), **mistake}
        spark.range(1).selectExpr("'a row' AS value").write.format("kafka_sink").mode("append").options(**options).save()
    assert "self = " in str(caught.value)  # so local variables are shown
    assert MARK not in str(caught.value)


def test_registering_twice_hides_once_and_keeps_what_was_hidden(spark: SparkSession) -> None:
    name = "spark.sql.redaction.options.regex"
    session = spark.newSession()
    session.conf.set(name, "mine")
    sks.register(session)
    once = session.conf.get(name)
    sks.register(session)
    sks.register(spark)
    assert once is not None
    assert once.startswith("mine|")
    assert session.conf.get(name) == once


@dataclass(frozen=True)
class Ran:
    """What is left of the program: a folder, and how each of its writes ended."""

    folder: Path
    outcomes: Mapping[str, str]

    def texts(self) -> dict[str, str]:
        files = {file for pattern in SEEN for file in self.folder.glob(pattern) if file.is_file()}
        return {str(file.relative_to(self.folder)): file.read_text(encoding="utf-8", errors="replace") for file in files}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    folder = tmp_path_factory.mktemp("secrets")
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    python = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    environment = {**os.environ, **python, VARIABLE: SECRET, VARIABLE_OF_LOGIN: f"{USER}:{SECRET}"}
    with EmbeddedBroker(config=USERS) as broker, StandIn() as registry, (folder / "driver.log").open("wb") as log:
        registry.login = f"Basic {base64.b64encode(f'{USER}:{SECRET}'.encode()).decode()}"
        broker.create_topic("events", partitions=2)
        done = subprocess.run(
            [sys.executable, str(PROGRAM), broker.bootstrap_servers, registry.url, str(folder)],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, (folder / "driver.log").read_text()[-4000:]
    return Ran(folder, json.loads((folder / "outcomes.json").read_text()))


@OWN_SPARK
def test_writes_end_as_they_should(ran: Ran) -> None:
    failed = {name: outcome for name, outcome in ran.outcomes.items() if outcome != "ok"}
    assert set(failed) == {name for name in ran.outcomes if name.startswith("failing-")}
    assert len(failed) == len(FAILING) + 4 + len(registry_failing("http://r")) + 2


@OWN_SPARK
def test_everything_is_looked_at(ran: Ran) -> None:
    texts = ran.texts()
    assert "kafka.sasl.jaas.config" in "".join(text for name, text in texts.items() if name.startswith("events/"))
    for part in (
        "driver.log",
        "jvm.log",
        "ui-sql.seen",
        "ui-page-SQL.seen",
        "stream-explained.seen",
        "failing-wrong-password-error.seen",
        "registry-stream-explained.seen",
        "failing-registry-password-error.seen",
        "registry-check-password.seen",
    ):
        assert len(texts[part]) > 100, part


@pytest.mark.fault("security", "no secret in logs, repr, exceptions, Spark's UI and event log")
@OWN_SPARK
def test_no_secret_is_seen(ran: Ran) -> None:
    seen = {name: text for name, text in ran.texts().items() if MARK in text}
    assert {name: excerpts(text) for name, text in seen.items()} == {}


def excerpts(text: str) -> list[str]:
    """Returns where the secrets are."""
    places = [place for place in range(len(text)) if text.startswith(MARK, place)]
    return [text[max(0, place - 120) : place + 40] for place in places[:3]]
