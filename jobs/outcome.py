"""How a job ends: its exit code, and one clear message instead of a stack trace of two languages."""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable
from enum import IntEnum

import spark_kafka_sink as sks
from spark_kafka_sink.errors import LocalError, RecordError
from spark_kafka_sink.spark.explain import sink_error


class ExitCode(IntEnum):
    """What a scheduler can act on. spark-submit passes it on in client mode; cluster mode knows only success and failure."""

    OK = 0
    FAILED = 1  # anything not below: the source, Spark itself; the log says what
    SETTINGS = 2  # command line, settings, options or columns: the same call fails the same way
    KAFKA = 3  # not reached, or not everything delivered or read: worth a retry
    DIFFERENCE = 4  # the topic does not hold what the source does
    INTERRUPTED = 130  # Ctrl-C, as shells have it
    TERMINATED = 143  # SIGTERM, as shells have it


HELP = """\
exit codes: 0 done; 1 failed for another reason (source, Spark); 2 command line, settings, options or columns are wrong;
3 Kafka was not reached, or not everything was delivered or read back; 4 differences found; 130 interrupted (Ctrl-C);
143 ended by SIGTERM: publish_stream stops its query and prints its report first, the others end at once.
spark-submit passes them on in client mode. Spark logs warnings and errors only; --conf spark.log.level=INFO shows more."""


class SettingsError(Exception):
    """The settings are wrong; names the file, section and setting."""


class ReadBackError(Exception):
    """A topic could not be read back. Spark keeps only the text of it, so that begins with CODE."""

    CODE = "READ_BACK"

    def __init__(self, message: str) -> None:
        super().__init__(f"[{self.CODE}] {message}")


_READ_BACK = re.compile(rf"\[{ReadBackError.CODE}\] .*")


def exit_code_of(error: BaseException) -> ExitCode:
    """What `error` means to a scheduler."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if isinstance(error, SettingsError):
        return ExitCode.SETTINGS
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
    found = sks.explain(error)
    if found.error is not None:
        return f"[{found.code}] {found.message}\nSee {found.link}"
    text = str(error)
    read_back = _READ_BACK.search(text)
    if read_back is not None:
        return read_back[0]
    return text.partition("\n\nJVM stacktrace:")[0].partition("\n\tat ")[0].strip() or type(error).__name__


def ending(job: Callable[[], ExitCode], *, verbose: bool) -> ExitCode:
    """Run `job`; an error becomes one message on stderr, with the whole stack trace if `verbose`, and its exit code."""
    try:
        return job()
    except (Exception, KeyboardInterrupt) as error:
        if verbose:
            traceback.print_exc()
        code = exit_code_of(error)
        print(f"error: {explain(error)}\nexit code {code.value} ({code.name})", file=sys.stderr, flush=True)
        return code
