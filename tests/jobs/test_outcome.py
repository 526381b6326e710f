"""Exit codes and messages: what a scheduler and a person are told of each kind of failure."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from jobs.outcome import ExitCode, SettingsError, ending, exit_code_of, explain
from spark_kafka_sink.errors import DeliveryError, MetadataTimeoutError, OptionError, RecordError, SchemaError
from spark_kafka_sink.verify.read_back import ReadBackError

# As PySpark has it of an error that was raised in a task.
TASK_FAILED = """Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0
Traceback (most recent call last):
  File "worker.py", line 1, in main
spark_kafka_sink.errors.MetadataTimeoutError: [METADATA_TIMEOUT] topic nowhere: not there after 2 s
\tat org.apache.spark.api.python.BasePythonRunner
Driver stacktrace:
spark_kafka_sink.errors.MetadataTimeoutError: [METADATA_TIMEOUT] topic nowhere: not there after 2 s
"""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SettingsError("x"), ExitCode.SETTINGS),
        (OptionError("x"), ExitCode.SETTINGS),
        (SchemaError("x"), ExitCode.SETTINGS),
        (AnalysisException("[PATH_NOT_FOUND] x"), ExitCode.SETTINGS),
        (RecordError("x"), ExitCode.KAFKA),
        (MetadataTimeoutError("x"), ExitCode.KAFKA),
        (DeliveryError("x"), ExitCode.KAFKA),
        (ReadBackError("x"), ExitCode.KAFKA),
        (RuntimeError(TASK_FAILED), ExitCode.KAFKA),
        (RuntimeError("out of memory [SOMETHING] else"), ExitCode.FAILED),
        (KeyboardInterrupt(), ExitCode.INTERRUPTED),
    ],
)
def test_each_failure_has_its_exit_code(error: BaseException, code: ExitCode) -> None:
    assert exit_code_of(error) is code


LINK = "\nSee https://spark-kafka-sink.github.io/spark-kafka-sink/troubleshooting.html#"


def test_of_two_stack_traces_only_the_sinks_own_line_is_shown_once() -> None:
    expected = f"[METADATA_TIMEOUT] topic nowhere: not there after 2 s{LINK}metadata-timeout"
    assert explain(RuntimeError(TASK_FAILED)) == expected


def test_what_a_task_noted_is_shown_as_well() -> None:
    note = "Kafka has acked 7 rows of Spark partition 0, attempt 0; they stay in their topics."
    error = RuntimeError(f"PythonException: [RECORD] column key: is bad\nThat is row 3 of the task.\n{note}\n\n\tat org.apache")

    assert explain(error) == f"[RECORD] column key: is bad\nThat is row 3 of the task.\n{note}{LINK}record"


def test_a_topic_that_could_not_be_read_is_shown_as_the_task_said_it() -> None:
    text = f"Job aborted\nTraceback\n...read_back.ReadBackError: {ReadBackError('topic t: gone')}\n\n\tat org.apache"

    assert explain(RuntimeError(text)) == "[READ_BACK] topic t: gone"
    assert exit_code_of(RuntimeError(text)) is ExitCode.KAFKA


def test_of_an_error_of_spark_the_stack_trace_is_left_out() -> None:
    assert explain(RuntimeError("no such file\n\nJVM stacktrace:\norg.apache.spark")) == "no such file"
    assert explain(RuntimeError("no such file\n\tat org.apache.spark")) == "no such file"


def test_an_error_without_a_text_is_named_by_its_class() -> None:
    assert explain(KeyboardInterrupt()) == "KeyboardInterrupt"


def test_a_failure_ends_in_one_message_and_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    def job() -> ExitCode:
        raise RuntimeError(TASK_FAILED)

    assert ending(job, verbose=False) is ExitCode.KAFKA
    assert capsys.readouterr().err == (
        f"error: [METADATA_TIMEOUT] topic nowhere: not there after 2 s{LINK}metadata-timeout\nexit code 3 (KAFKA)\n"
    )


def test_verbose_shows_the_stack_trace_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    def job() -> ExitCode:
        raise SettingsError("x")

    assert ending(job, verbose=True) is ExitCode.SETTINGS
    assert "in job\n" in capsys.readouterr().err
