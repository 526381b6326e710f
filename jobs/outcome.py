"""How a job ends: its exit code, and one clear message instead of a stack trace of two languages."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from spark_kafka_sink.verify import outcome
from spark_kafka_sink.verify.outcome import ExitCode, explain

__all__ = ["HELP", "ExitCode", "SettingsError", "ending", "exit_code_of", "explain"]

HELP = """\
exit codes: 0 done; 1 failed for another reason (source, Spark); 2 command line, settings, options or columns are wrong;
3 Kafka was not reached, or not everything was delivered or read back; 4 differences found; 130 interrupted (Ctrl-C);
143 ended by SIGTERM: publish_stream stops its query and prints its report first, the others end at once.
spark-submit passes them on in client mode. Spark logs warnings and errors only; --conf spark.log.level=INFO shows more."""


class SettingsError(Exception):
    """The settings are wrong; names the file, section and setting."""


def exit_code_of(error: BaseException) -> ExitCode:
    """What `error` means to a scheduler."""
    return ExitCode.SETTINGS if isinstance(error, SettingsError) else outcome.exit_code_of(error)


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
