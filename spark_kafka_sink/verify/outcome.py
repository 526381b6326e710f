"""Exit codes and messages of the programs that write and compare topics."""

from __future__ import annotations

import re
from enum import IntEnum

from spark_kafka_sink.errors import LocalError, RecordError
from spark_kafka_sink.spark.driver.explain import explain as explained
from spark_kafka_sink.spark.driver.explain import sink_error
from spark_kafka_sink.verify.read_back import ReadBackError


class ExitCode(IntEnum):
    """Exit codes that a scheduler can act on. spark-submit passes them on in client mode, but not in cluster mode."""

    OK = 0
    FAILED = 1  # anything not below: the source, Spark itself; the log says what
    SETTINGS = 2  # command line, settings, options or columns: the same call fails the same way
    KAFKA = 3  # not reached, or not everything delivered or read: worth a retry
    DIFFERENCE = 4  # the topic does not hold what the source does, or bad records
    EMPTY = 5  # there was no record to decode, so nothing was verified
    INTERRUPTED = 130  # Ctrl-C, as shells have it
    TERMINATED = 143  # SIGTERM, as shells have it


_READ_BACK = re.compile(rf"\[{ReadBackError.CODE}\] .*")


def exit_code_of(error: BaseException) -> ExitCode:
    """Returns what an error means to a scheduler."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    found = sink_error(error)
    if found is not None:
        # A bad record is not a wrong setting: the next run may not have it.
        is_wrong = isinstance(found, LocalError) and not isinstance(found, RecordError)
        return ExitCode.SETTINGS if is_wrong else ExitCode.KAFKA
    if _READ_BACK.search(str(error)):
        return ExitCode.KAFKA
    # Spark's name for what is wrong with a plan before it runs: columns, expressions, paths, formats. The message of a query
    # that failed later has a different class.
    return ExitCode.SETTINGS if type(error).__name__ in ("AnalysisException", "ParseException") else ExitCode.FAILED


def explain(error: BaseException) -> str:
    """Returns what went wrong without the stack traces around it: the sink's own error and its link, else Spark's first lines."""
    found = explained(error)
    if found.error is not None:
        return f"[{found.code}] {found.message}\nSee {found.link}"
    text = str(error)
    read_back = _READ_BACK.search(text)
    if read_back is not None:
        return read_back[0]
    return text.partition("\n\nJVM stacktrace:")[0].partition("\n\tat ")[0].strip() or type(error).__name__
