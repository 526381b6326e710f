"""The report of `check` as text, HTML and JSON."""

from __future__ import annotations

import json

from spark_kafka_sink.errors import AuthorizationError, DeadlineError, OptionError
from spark_kafka_sink.spark.driver.checks.report import CheckReport, failed, failed_by, not_checked, not_checked_after, ok

COMMAND = "kafka-acls --bootstrap-server broker:9092 --add --allow-principal User:ana --operation Write --topic " + "e" * 60
REPORT = CheckReport(
    (
        ok("options", "at-least-once to topic 'events'"),
        ok("topic", "topic 'events' has 4 partitions", "one replica"),
        failed(
            "rights", "User:ana is not authorized", f"run `{COMMAND}`, or ask for it", "https://docs.example/x.html#authorization"
        ),
        not_checked("columns", "no DataFrame was given"),
    ),
    1.25,
)


def test_it_prints_a_mark_for_each_line_and_what_to_do() -> None:
    text = repr(REPORT)
    assert text.splitlines()[0] == "1 problem found in 1.2 s: 2 ok, 1 failed, 1 not checked"
    assert "✓ options  at-least-once to topic 'events'" in text
    assert "hint: one replica" in text
    assert "✗ rights   User:ana is not authorized" in text
    assert "– columns  no DataFrame was given" in text
    assert "see https://docs.example/x.html#authorization" in text
    assert any(COMMAND in line for line in text.splitlines())


def test_marks_are_ascii_for_a_terminal_that_lacks_others() -> None:
    assert REPORT.text(plain=True).isascii()
    assert "FAIL rights" in REPORT.text(plain=True)


def test_a_notebook_shows_a_table_without_anybodys_markup() -> None:
    html = CheckReport((failed("topic", "<script>", "<b>", "https://docs.example/?a&b"),), 0)._repr_html_()
    assert "&lt;script&gt;" in html
    assert "<script>" not in html
    assert 'href="https://docs.example/?a&amp;b"' in html


def test_a_report_without_crosses_is_ok() -> None:
    assert not REPORT.ok
    assert [line.name for line in REPORT.failed] == ["rights"]
    assert CheckReport((ok("a", "b"), not_checked("c", "d")), 0).ok


def test_a_report_of_checks_that_had_no_time_is_not_ok_and_says_so() -> None:
    late = not_checked_after("topic configs", DeadlineError("DescribeConfigs: timed out"))
    report = CheckReport((ok("options", "b"), late), 10)
    assert not report.failed
    assert not report.complete
    assert not report.ok
    assert "the time ran out before everything was checked" in repr(report).splitlines()[0]
    assert report.as_json()["complete"] is False
    denied = not_checked_after("topic configs", AuthorizationError("no right"))
    assert CheckReport((denied,), 1).ok


def test_a_program_reads_it_as_json() -> None:
    told = json.loads(json.dumps(REPORT.as_json()))
    assert told["ok"] is False
    assert told["seconds"] == 1.25
    assert told["checks"][3] == {
        "name": "columns",
        "status": "not checked",
        "text": "no DataFrame was given",
        "to_do": "",
        "link": "",
        "timed_out": False,
    }


def test_the_line_of_an_error_has_its_code_and_its_link() -> None:
    line = failed_by("options", OptionError("option topic: is wrong", option="topic"))
    assert (line.text, line.to_do) == ("[OPTION] option topic: is wrong", "")
    assert line.link.endswith("troubleshooting.html#option")


def test_the_line_of_a_missing_right_has_its_acl_as_what_to_do() -> None:
    error = AuthorizationError(
        "topic t: NOT ALLOWED; User:ana is not authorized for Write on topic t; to grant it, run `kafka-acls`"
    )
    line = failed_by("rights", error, "ask for it")
    assert line.text == "[AUTHORIZATION] topic t: NOT ALLOWED; User:ana is not authorized for Write on topic t"
    assert line.to_do == "run `kafka-acls`, or ask for it"
