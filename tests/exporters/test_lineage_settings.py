"""Settings of OpenLineage's agent for Spark, as its Python client has them."""

from __future__ import annotations

import pytest

from spark_kafka_sink.exporters.lineage_settings import OuterRun, lineage_settings, snake_case

RUN = "0190d5a6-0000-7000-8000-000000000001"
ROOT = "0190d5a6-0000-7000-8000-000000000002"


def test_without_settings_there_are_the_agents_defaults() -> None:
    found = lineage_settings({"spark.app.name": "Daily Orders"}, {}, "4.1.0")
    assert (found.namespace, found.app_name, found.spark_version) == ("default", "daily_orders", "4.1.0")
    assert (found.parent, found.transport, found.is_disabled, found.problems) == (None, None, False, ())


def test_the_parent_and_the_root_come_from_spark() -> None:
    conf = {
        "spark.openlineage.namespace": "prod",
        "spark.openlineage.appName": "orders",
        "spark.openlineage.parentRunId": RUN,
        "spark.openlineage.parentJobName": "dag.task",
        "spark.openlineage.parentJobNamespace": "airflow",
        "spark.openlineage.rootParentRunId": ROOT,
        "spark.openlineage.rootParentJobName": "dag",
    }
    found = lineage_settings(conf, {"OPENLINEAGE_NAMESPACE": "other", "OPENLINEAGE_PARENT_ID": f"a/b/{ROOT}"}, "4.1.0")
    assert (found.namespace, found.app_name) == ("prod", "orders")
    assert found.parent == OuterRun(RUN, "airflow", "dag.task")
    assert found.root == OuterRun(ROOT, "prod", "dag")


def test_else_they_come_from_the_environment() -> None:
    found = lineage_settings({}, {"OPENLINEAGE_NAMESPACE": "prod", "OPENLINEAGE_PARENT_ID": f"air/flow/dag.task/{RUN}"}, "")
    assert (found.namespace, found.parent) == ("prod", OuterRun(RUN, "air/flow", "dag.task"))


@pytest.mark.parametrize(
    ("conf", "environment", "problem"),
    [
        ({"parentRunId": "7", "parentJobName": "n"}, {}, "spark.openlineage.parentRunId is not a UUID"),
        ({"parentRunId": RUN}, {}, "spark.openlineage.parentJobName is missing"),
        ({}, {"OPENLINEAGE_PARENT_ID": RUN}, "OPENLINEAGE_PARENT_ID must be namespace/name/run id"),
        ({"transport.timeoutInMillis": "soon"}, {}, "spark.openlineage.transport.timeoutInMillis is not a number"),
        (
            {"transport.urlParams.a": "b"},
            {},
            "spark.openlineage.transport.urlParams.a is not supported by OpenLineage's Python client",
        ),
    ],
)
def test_what_cannot_be_used_is_a_problem(conf: dict[str, str], environment: dict[str, str], problem: str) -> None:
    found = lineage_settings({f"spark.openlineage.{name}": value for name, value in conf.items()}, environment, "")
    assert found.problems == (problem,)
    assert found.parent is None


def test_a_transport_gets_the_python_clients_names() -> None:
    conf = {
        "type": "http",
        "url": "http://marquez:5000",
        "endpoint": "/api/v1/lineage",
        "timeoutInMillis": "1500",
        "auth.type": "api_key",
        "auth.apiKey": "s3cret",
        "headers.X-Tenant.Id": "7",
        "compression": "gzip",
    }
    found = lineage_settings({f"spark.openlineage.transport.{name}": value for name, value in conf.items()}, {}, "")
    assert found.transport == {
        "type": "http",
        "url": "http://marquez:5000",
        "endpoint": "/api/v1/lineage",
        "timeout": 1.5,
        "auth": {"type": "api_key", "apiKey": "s3cret"},
        "custom_headers": {"X-Tenant.Id": "7"},
        "compression": "gzip",
    }
    assert "s3cret" not in repr(found)


def test_a_kafka_transport_keeps_the_dots_of_its_properties() -> None:
    conf = {"type": "kafka", "topicName": "lineage", "properties.bootstrap.servers": "b:9092"}
    found = lineage_settings({f"spark.openlineage.transport.{name}": value for name, value in conf.items()}, {}, "")
    assert found.transport == {"type": "kafka", "topic": "lineage", "config": {"bootstrap.servers": "b:9092"}}


@pytest.mark.parametrize(
    ("name", "written"),
    [("My App", "my_app"), ("camelCaseName", "camel_case_name"), ("ETLJob-7", "etl_job_7"), ("Café", "cafe"), ("--", "spark")],
)
def test_an_applications_name_is_in_snake_case(name: str, written: str) -> None:
    assert snake_case(name) == written
