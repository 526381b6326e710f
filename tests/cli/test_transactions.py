"""`spark-kafka-sink transactions`: its options, what is wrong with them, and what it does without."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner

from spark_kafka_sink.cli.main import main, transactions
from spark_kafka_sink.options.guarantee_options import ExactlyOnce
from tests.cli.left_over import LeftOver
from tests.waiting import wait_until


@pytest.mark.parametrize(
    "command", [["recover", "--all"], ["abort", "--query", "q", "--yes"], ["resolve", "--query", "q", "--batch", "0", "--replay"]]
)
def test_a_commit_log_that_is_not_there_is_not_made(query: LeftOver, command: list[str]) -> None:
    query.log_topic = f"{query.log_topic}-{uuid.uuid4()}"
    refused = query.run(*command)
    assert refused.exit_code == 1
    assert f"there is no commit log: topic {query.log_topic} does not exist; check --commit-log-topic" in refused.stderr
    assert query.log_topic not in query.kafka.metadata().topics


def test_records_are_not_looked_for_where_another_number_of_partitions_puts_them(query: LeftOver) -> None:
    # Of the topic's two partitions the sink was told to use one.
    query.query_id = "q-4"  # of two partitions the second
    query.partitions = 1
    query.prepared(0, [query.task(0, "a")])
    refused = query.run("recover", "--query", query.query_id)
    assert refused.exit_code == 1
    assert "set --commit-log-partitions to the sink's commit.log.partitions" in refused.stderr
    assert query.run("recover", "--query", query.query_id, "--commit-log-partitions", "1").exit_code == 0
    wait_until(lambda: query.visible() == ["a"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["list", "--bootstrap-servers", "broker"], "'broker' has no port: write broker:9092"),
        (["list", "--bootstrap-servers", "b:1", "--timeout", "0"], "0.0 is not in the range 0<x<=3600"),
        (["recover", "--bootstrap-servers", "b:1"], "set either --query ID or --all, not both"),
        (["recover", "--bootstrap-servers", "b:1", "--all", "--query", "q"], "set either --query ID or --all"),
        (["abort", "--bootstrap-servers", "b:1"], "Missing option '--query'"),
        (["resolve", "--bootstrap-servers", "b:1", "--query", "q", "--replay"], "Missing option '--batch'"),
        (
            ["resolve", "--bootstrap-servers", "b:1", "--query", "q", "--batch", "0"],
            "set either --accept-loss or --replay, not both",
        ),
        (["resolve", "--bootstrap-servers", "b:1", "--query", "q", "--batch", "-1"], "-1 is not in the range x>=0"),
        (["list", "--bootstrap-servers", "b:1", "--command-config", "/nowhere"], "/nowhere cannot be read: No such file"),
    ],
)
def test_wrong_options_are_said(arguments: list[str], text: str) -> None:
    refused = CliRunner().invoke(main, ["transactions", *arguments])
    assert refused.exit_code == 2
    assert text in refused.stderr


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("client.idd=me", "unknown option client.idd; did you mean client.id?"),
        ("request.timeout.ms=secret", "option request.timeout.ms: 'secret' is not a whole number"),
        ("security.protocol=TLS", "option security.protocol: 'TLS' is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config=secret", "the login module's class must be one of"),
        ("sasl.mechanism=${env:NOT_THERE}", "option sasl.mechanism: ${env:NOT_THERE}: environment variable NOT_THERE is not set"),
        ("ssl.provider=secret", "option ssl.provider: Java security providers cannot run here"),
        ("ssl.truststore.locaton=x", "unknown option ssl.truststore.locaton; did you mean ssl.truststore.location?"),
        ("client.id=\\u12", "\\u needs four hexadecimal digits"),
        ("secret", "must have the form name=value"),
    ],
)
def test_what_is_wrong_in_a_file_of_properties_is_named(tmp_path: Path, line: str, text: str) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# of ours\n\n{line}\n")
    refused = CliRunner().invoke(main, ["transactions", "list", "--bootstrap-servers", "b:1", "--command-config", str(file)])
    assert refused.exit_code == 2
    assert text in refused.stderr


def test_a_file_of_properties_is_used(query: LeftOver, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("! as Java's tools read it\nclient.id: me\nsecurity.protocol = PLAINTEXT\ndefault.api.timeout.ms=5\n")
    listed = query.run("list", "--command-config", str(file))
    assert listed.exit_code == 0
    assert listed.stderr == f"Warning: {file}: option default.api.timeout.ms is ignored: use --timeout instead\n"


def test_defaults_are_the_sinks() -> None:
    sink = ExactlyOnce()
    defaults = {option.name: option.default for option in transactions.commands["list"].params}
    assert (defaults["prefix"], defaults["commit_log_topic"]) == (sink.transactional_id_prefix, sink.commit_log.topic)


@pytest.mark.parametrize("name", ["list", "recover", "abort", "resolve"])
def test_help_says_what_it_exits_with(name: str) -> None:
    assert "Exit codes: 0 on success, 1 if" in CliRunner().invoke(main, ["transactions", name, "--help"]).stdout
