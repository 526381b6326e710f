"""explain() finds the sink's error in whatever Spark makes of it. Texts are as PySpark 4.3 has them, shortened."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NoReturn

import pytest
from pyspark.sql import DataFrame

import spark_kafka_sink as sks
from spark_kafka_sink import errors
from spark_kafka_sink.errors import (
    DOCS_URL,
    DeliveryError,
    KafkaSinkError,
    MetadataTimeoutError,
    RecordTooLargeError,
    SchemaError,
)
from spark_kafka_sink.exactly_once.commit_record import CommitRecordError
from spark_kafka_sink.exactly_once.log_writer import ClaimLostError
from spark_kafka_sink.spark.driver.explain import linked, plug_in_error, sink_error

SITE = "https://spark-kafka-sink.github.io/spark-kafka-sink/troubleshooting.html"

TASK = """Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in stage 1.0
(TID 4) (host executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/worker.py", line 2044, in main
    process()
spark_kafka_sink.errors.BrokerError: [BROKER] batch of events-0: MESSAGE_TOO_LARGE

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/app/spark_kafka_sink/spark/task.py", line 104, in _deliver
    scope.flush()
spark_kafka_sink.errors.DeliveryError: [DELIVERY] topic events: 3 of 10 records were not delivered, first error of broker-1:9092: [BROKER] MESSAGE_TOO_LARGE
Kafka has acknowledged 7 rows of Spark partition 2, attempt 3.

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:645)
Driver stacktrace:
spark_kafka_sink.errors.BrokerError: [BROKER] another one
"""  # noqa: E501

PLANNING = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):
  File "/spark/python/lib/pyspark.zip/pyspark/sql/worker/write_into_data_source.py", line 180, in _main
    writer = data_source.writer(schema, overwrite)
spark_kafka_sink.errors.SchemaError: [SCHEMA] column value: is int, must be string or binary; use cast(value as string)
 SQLSTATE: 38000"""

CONTINUOUS = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [USAGE] trigger(continuous=...) is not supported"
    " SQLSTATE: XXKST"
)

SPARKS_OWN = """An error occurred while calling o1.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.jobAborted(QueryExecutionErrors.scala:1)
Caused by: java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file or directory
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
\t... 34 more
"""


class Query:
    """What is asked of a StreamingQuery."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def exception(self) -> Exception | None:
        return self._error


def test_of_a_failed_task_the_last_error_of_the_first_traceback_is_found_with_its_notes_and_facts() -> None:
    found = sks.explain(RuntimeError(TASK))
    assert type(found.error) is DeliveryError
    assert found.code == "DELIVERY"
    assert found.message.splitlines() == [
        "topic events: 3 of 10 records were not delivered, first error of broker-1:9092: [BROKER] MESSAGE_TOO_LARGE",
        "Kafka has acknowledged 7 rows of Spark partition 2, attempt 3.",
    ]
    assert dict(found.facts) == {"topic": "events", "broker": "broker-1:9092", "error": "MESSAGE_TOO_LARGE"}
    assert found.link == f"{SITE}#delivery"


@pytest.mark.parametrize(
    ("text", "broker"),
    [
        ("no response since 12:30", None),
        ("no response since 12:30:05, broker-1:9092 is down", "broker-1:9092"),
        ("2026-11-23T12:30:05Z no response", None),
        ("10.0.0.1:9092: refused", "10.0.0.1:9092"),
        ("could not connect to [::1]:9092", "[::1]:9092"),
    ],
)
def test_a_time_is_no_broker(text: str, broker: str | None) -> None:
    assert sks.explain(f"[DEADLINE] {text}").facts.get("broker") == broker


def test_it_prints_as_lines_and_as_html() -> None:
    found = sks.explain(RuntimeError(PLANNING))
    assert repr(found).splitlines() == [
        "[SCHEMA] column value: is int, must be string or binary; use cast(value as string)",
        "column: value",
        f"See {SITE}#schema",
    ]
    html = found._repr_html_()
    assert "<b>[SCHEMA]</b> column value: is int" in html
    assert "<th>column</th><td>value</td>" in html
    assert f'<a href="{SITE}#schema">' in html
    assert "&lt;b&gt;" in sks.explain(SchemaError("column <b>: is wrong"))._repr_html_()


def test_words_of_a_sentence_are_no_column() -> None:
    assert sks.explain("[SCHEMA] no column is left for the value, and the column of a map has no name").facts == {}
    assert sks.explain("[USAGE] the topic name: there is no option of that name").facts == {}


def test_a_position_in_json_is_no_column() -> None:
    text = "value: option value.schema: the Avro schema is not valid JSON: Expecting ',' delimiter: line 1 column 2 (char 1)"
    assert sks.explain(f"[SCHEMA] {text}").facts == {"option": "value.schema"}


def test_fields_of_a_schema_are_shown_once() -> None:
    text = "value: option value.schema: 1 field does not fit:\n  age: column string, schema int: it must be a whole number"
    found = sks.explain(SchemaError(text, part="value", fields=("age",)))
    assert found.facts["fields"] == ("age",)
    assert str(found).splitlines() == [
        f"[SCHEMA] {text.splitlines()[0]}",
        *text.splitlines()[1:],
        "option: value.schema",
        "part: value",
        f"See {SITE}#schema",
    ]
    assert "<th>fields</th>" not in found._repr_html_()


@pytest.mark.parametrize(
    ("failure", "kind", "message"),
    [
        (CONTINUOUS, errors.UsageError, "trigger(continuous=...) is not supported"),
        (Query(RuntimeError(CONTINUOUS)), errors.UsageError, "trigger(continuous=...) is not supported"),
        (RecordTooLargeError("row 3", row=3), RecordTooLargeError, "row 3"),
        ("26/11/23 WARN [COMMIT_TIMEOUT] batch 3: not committed", errors.CommitTimeoutError, "batch 3: not committed"),
    ],
)
def test_it_takes_texts_queries_and_the_error_itself(failure: object, kind: type[KafkaSinkError], message: str) -> None:
    found = sks.explain(failure)
    assert type(found.error) is kind
    assert found.message == message


def test_the_error_itself_is_returned_where_another_was_raised_from_it() -> None:
    own = MetadataTimeoutError("topic t: not there", topic="t")
    outer = RuntimeError("job failed")
    outer.__cause__ = own
    assert sink_error(outer) is own
    quoting = RuntimeError(f"job failed: {own}")
    quoting.__cause__ = own
    assert sink_error(quoting) is own
    assert sks.explain(outer).facts == {"topic": "t"}


def test_of_a_second_try_its_own_error_is_explained() -> None:
    """As in `except KafkaSinkError: df.write...`, where Python makes the first try's error the context of the second's."""
    second = RuntimeError(TASK)
    second.__context__ = errors.OptionError("option topic: is wrong", option="topic")
    assert sks.explain(second).code == "DELIVERY"


ERROR_OF_WORKER = "[PYTHON_EXCEPTION] An exception was thrown from the Python worker"


@pytest.mark.parametrize(
    ("raised", "is_ours"),
    [
        ("ValueError", False),
        ("spark_kafka_sink.errors.SchemaError", True),
        # Spark 4.3 on Connect, with spark.sql.execution.pyspark.udf.hideTraceback.enabled
        (f"{ERROR_OF_WORKER}: spark_kafka_sink.errors.SchemaError", True),
    ],
)
def test_of_another_programs_error_a_code_alone_is_not_certain(raised: str, is_ours: bool) -> None:
    error = RuntimeError(f"Traceback (most recent call last):\n  File x\n{raised}: [SCHEMA] column a: is bad\n")
    assert (sink_error(error, is_certain=True) is not None) is is_ours
    assert type(sink_error(error)) is SchemaError


@pytest.mark.parametrize(
    ("failure", "cause"),
    [
        (RuntimeError(SPARKS_OWN), 'java.io.IOException: Cannot run program "./environment/bin/python": error=2, No such file'),
        ("Traceback (most recent call last):\n  File x\nZeroDivisionError: division by zero\n", "ZeroDivisionError: division"),
        (RuntimeError("[PATH_NOT_FOUND] Path does not exist: /x. SQLSTATE: 42K03"), "[PATH_NOT_FOUND] Path does not exist: /x."),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        ("", "unknown"),
    ],
)
def test_without_an_error_of_the_sink_it_says_so_and_gives_the_root_cause_of_spark(failure: object, cause: str) -> None:
    found = sks.explain(failure)
    assert (found.error, found.code, found.link) == (None, None, None)
    assert found.message.startswith(cause)
    assert str(found).startswith(f"No error of spark-kafka-sink was found. Spark's root cause: {cause}")
    assert "No error of spark-kafka-sink" in found._repr_html_()


def test_a_query_that_has_not_failed_has_no_error() -> None:
    assert str(sks.explain(Query(None))) == str(sks.explain(None)) == "There is no error to explain."


def test_an_error_raised_alone_shows_its_link_once_and_pickles() -> None:
    error = linked(linked(SchemaError("column value is required", column="value")))
    assert error.__notes__ == [f"See {SITE}#schema"]
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.facts, again.__notes__) == (str(error), {"column": "value"}, error.__notes__)
    assert str(sks.explain(error)).count(SITE) == 1


def failing_batch(raised: Exception) -> DataFrame:
    """A DataFrame whose write fails with an error of Spark's."""

    class Failing(DataFrame):
        @property
        def sparkSession(self) -> NoReturn:
            raise raised

        isStreaming = False

    return object.__new__(Failing)  # a DataFrame of its own has a plan


@pytest.mark.parametrize(
    "text", ["no such column", TASK.replace("spark_kafka_sink.errors", "ValueError: spark_kafka_sink.errors")]
)
def test_an_error_that_is_handled_is_not_taken_for_the_next_one(text: str) -> None:
    """A program that writes to another topic after an error sees why that failed, not the first error again."""
    df = failing_batch(RuntimeError(text))
    calls: list[Callable[[], object]] = [
        lambda: sks.publish(df, topic="t", bootstrap_servers="127.0.0.1:1"),
        lambda: sks.foreach_batch({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})(df, 0),
    ]
    for call in calls:
        try:
            raise DeliveryError("topic first: not delivered")
        except DeliveryError:
            with pytest.raises(RuntimeError):
                call()


@pytest.mark.parametrize("before", ["ValueError: bad row: ", "  File x\n    raise ValueError('", "WARN "])
def test_a_text_in_another_programs_error_is_not_certain(before: str) -> None:
    """Data may hold what looks like an error of the sink."""
    forged = f"{before}spark_kafka_sink.errors.DeliveryError: [DELIVERY] topic t: forged"
    assert sink_error(RuntimeError(f"Traceback (most recent call last):\n{forged}\n"), is_certain=True) is None


def test_each_code_makes_the_error_that_has_it() -> None:
    own = [kind for kind in vars(errors).values() if isinstance(kind, type) and "code" in vars(kind)]
    assert len(own) > 20
    for kind in (*own, CommitRecordError, ClaimLostError):
        assert issubclass(kind, KafkaSinkError)
        assert type(sink_error(f"x: [{kind.code}] something")) is kind


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("ModuleNotFoundError: No module named 'spark_kafka_sink'", "set PYSPARK_PYTHON"),
        ("ModuleNotFoundError: No module named 'pyarrow'", "set PYSPARK_PYTHON"),
        ("AnalysisException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: kafka_sink. Make sure", "register(spark)"),
        ("Caused by: java.lang.ClassNotFoundException: kafka_sink.DefaultSource", "register(spark) in this thread"),
        ("PySparkValueError: [CANNOT_PARSE_DATATYPE] Unable to parse datatype. timestamp_ntz(9).", "Drop it or cast it"),
        (
            'AnalysisException: [UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "kafka_sink" cannot be written in the'
            ' ErrorIfExists mode. Please use either the "Append" or "Overwrite" mode instead.',
            "Add .mode('append')",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: requirement failed: kafka_sink does not support"
            " Update mode. SQLSTATE: XXKST",
            "foreachBatch(foreach_batch(",
        ),
    ],
)
def test_a_failure_of_spark_that_users_meet_first_has_a_hint(text: str, hint: str) -> None:
    found = sks.explain(text)
    assert hint in str(found)
    assert DOCS_URL in str(found)
    assert DOCS_URL in found._repr_html_()


def test_other_failures_have_no_hint() -> None:
    assert DOCS_URL not in str(sks.explain("ModuleNotFoundError: No module named 'my_job'"))


@pytest.mark.parametrize("way", ["publish", "foreach_batch"])
def test_an_error_that_is_raised_alone_keeps_the_exception_of_a_plug_in_that_caused_it(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    own = ZeroDivisionError("in a serializer's constructor")

    def failing(*_: object) -> None:
        raise errors.OptionError("option kafka.value.serializer: cannot be made") from own

    frame: Any = None
    with pytest.raises(errors.OptionError) as caught:
        if way == "publish":
            monkeypatch.setattr("spark_kafka_sink.spark.driver.publish._publish", failing)
            sks.publish(frame, topic="events", bootstrap_servers="localhost:9092")
        else:
            monkeypatch.setattr("spark_kafka_sink.spark.driver.foreach_batch.ForeachBatch._publish", failing)
            sks.foreach_batch({"kafka.bootstrap.servers": "localhost:9092", "topic": "events"})(frame, 0)
    assert caught.value.__cause__ is own


def test_other_causes_are_in_the_text_and_not_raised_again() -> None:
    error = errors.AuthenticationError("broker 1: the certificate is not trusted")
    error.__cause__ = OSError("certificate verify failed")
    assert plug_in_error(error) is None
    nested = errors.SerializationError("row 3 of the task: bad")
    nested.__cause__ = errors.SerializationError("row 3: bad")
    nested.__cause__.__cause__ = own = ZeroDivisionError()
    assert plug_in_error(nested) is own
