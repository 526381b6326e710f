"""`check(options, df)`: tests a sink's settings before anything is written, within a few seconds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.errors import KafkaSinkError, OptionError, UsageError
from spark_kafka_sink.options.sink_options import with_prefix
from spark_kafka_sink.spark.driver.checks.brokers import check_brokers, check_login, check_tls
from spark_kafka_sink.spark.driver.checks.context import CheckContext, SkippedError, Step, client_for
from spark_kafka_sink.spark.driver.checks.report import OPTIONS, CheckLine, CheckReport, failed, failed_by, not_checked, ok
from spark_kafka_sink.spark.driver.checks.schema_registry import REGISTRY, check_registry
from spark_kafka_sink.spark.driver.checks.topic import (
    DEAD_LETTERS,
    REPORTS,
    check_dead_letters,
    check_reports,
    check_rights,
    check_topic,
)
from spark_kafka_sink.spark.driver.checks.transactions import check_transactions
from spark_kafka_sink.spark.plugin_checks import checked_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["CheckReport", "check"]

_MARGIN: Final = 0.05
"""Share of the time that is kept for a step that ends late."""

_STEPS: Final[Mapping[str, Step]] = {
    "brokers": check_brokers,
    "TLS": check_tls,
    "login": check_login,
    "topic": check_topic,
    "rights": check_rights,
    DEAD_LETTERS: check_dead_letters,
    REPORTS: check_reports,
    "exactly-once": check_transactions,
    REGISTRY: check_registry,
}
"""The steps that need brokers, in their order."""

_COLUMNS: Final = "columns"
_PYTHON: Final = "Python"
_ORDER: Final = (OPTIONS, *_STEPS, _COLUMNS, _PYTHON)


def check(options: Mapping[str, object], df: DataFrame | None = None, *, timeout: float = 10) -> CheckReport:
    """Tests the settings of a sink: brokers, TLS, login, rights, topic, transactions, schemas, and the DataFrame's columns.

    Nothing is written to the topic, and no schema is registered. Connections are made from this process only; executors may be
    on another network. [Check the settings](check.md) lists the checks.

    Args:
        options: as for `format("kafka_sink")`.
        df: the DataFrame to write, batch or streaming; None skips columns and Python workers.
        timeout: seconds for everything. What is not done by then is reported as not checked.

    Returns:
        A report that prints as ticks and crosses. Wrong options and unreachable brokers are crosses, not exceptions.

    Raises:
        UsageError: `timeout` is not a positive number, or `df` is not Spark's.
    """
    if not timeout > 0:
        raise UsageError(f"check: timeout must be a positive number of seconds, and is {timeout!r}")
    if df is not None and not hasattr(df, "sparkSession"):
        raise UsageError(f"check() needs a DataFrame of Spark, not a {type(df).__name__}; publish() checks Arrow data itself")
    run = _Run(options, df, timeout)
    with _quiet_client():
        return run.report()


class _Run:
    """One check. The steps run in a thread, so that nothing that hangs, such as a name server, holds up the report."""

    def __init__(self, options: Mapping[str, object], df: DataFrame | None, timeout_s: float) -> None:
        self._given = options
        self._df = df
        self._timeout_s = timeout_s
        self._start = time.monotonic()
        self._lock = threading.Lock()
        self._lines: dict[str, list[CheckLine]] = {}
        self._current = ""
        self._is_over = False
        self._failure: BaseException | None = None
        self._context: CheckContext | None = None  # once the options are known to be right

    def report(self) -> CheckReport:
        thread = threading.Thread(target=self._run, name="kafka-sink-check", daemon=True)
        thread.start()
        thread.join(max(0.0, self._start + self._timeout_s - time.monotonic()))
        with self._lock:
            self._is_over = True
            if self._failure is not None:
                raise self._failure
            lines = {step: list(found) for step, found in self._lines.items()}
            hanging = self._current
        if thread.is_alive() and hanging:
            text = f"no answer within {self._timeout_s:g} s"
            lines.setdefault(hanging, []).append(
                failed(hanging, text, "check name servers, firewalls, and the load of the brokers")
            )
        if not any(line.name == OPTIONS and line.status != "ok" for line in lines.get(OPTIONS, [])):
            for step in _ORDER:
                if step not in lines:
                    lines[step] = [not_checked(step, f"no time left of {self._timeout_s:g} s", timed_out=True)]
        ordered = (line for step in _ORDER for line in lines.get(step, []))
        return CheckReport(tuple(ordered), time.monotonic() - self._start)

    # In the thread

    def _run(self) -> None:
        try:
            self._step(OPTIONS, self._options)
            if self._context is not None:
                try:
                    self._check(self._context)
                finally:
                    self._context.client.close()
        except BaseException as error:  # a defect, or a plug-in's own error: for the caller
            with self._lock:
                self._failure = error

    def _check(self, context: CheckContext) -> None:
        options = context.options
        if self._df is None:
            for step in (_COLUMNS, _PYTHON):
                self._add(step, not_checked(step, "no DataFrame was given"))
        else:
            from spark_kafka_sink.spark.driver.checks.dataframe import check_columns, check_python

            self._step(_COLUMNS, partial(check_columns, self._df, context))
            self._step(_PYTHON, partial(check_python, self._df))
        if options.errors.topic is None:
            self._lines[DEAD_LETTERS] = []
        if options.report_topic is None:
            self._lines[REPORTS] = []
        if options.schemas is None:
            self._lines[REGISTRY] = []  # it is not used, so there is nothing to say about it
        for name, look in _STEPS.items():
            if time.monotonic() < context.deadline:
                self._step(name, partial(look, context))

    def _options(self) -> Iterator[CheckLine]:
        options = checked_options(self._given, warns_of_security=False)
        client = client_for(options, self._timeout_s)
        try:
            client.prepare()
        except OptionError as error:  # of a file or an environment variable that an option names
            raise with_prefix(error) from None
        self._context = CheckContext(options, self._timeout_s, self._start + self._timeout_s * (1 - _MARGIN), client)
        where = f"to topic {options.topic!r}" if options.topic else "to the topics of the column topic"
        servers = ",".join(options.producer.bootstrap_servers)
        yield ok(OPTIONS, f"{options.guarantee} delivery {where} on {servers}")

    def _step(self, name: str, step: Callable[[], Iterable[CheckLine]]) -> None:
        """Runs a step, and adds its lines as they come. A KafkaSinkError is a line, too."""
        if self._is_over:
            return
        self._current = name
        try:
            for line in step():
                self._add(name, line)
        except SkippedError as reason:
            self._add(name, not_checked(name, str(reason)))
        except KafkaSinkError as error:
            self._add(name, failed_by(name, error))
        self._current = ""

    def _add(self, step: str, line: CheckLine) -> None:
        with self._lock:
            self._lines.setdefault(step, []).append(line)


@contextmanager
def _quiet_client() -> Iterator[None]:
    """Keeps warnings of connections, which the report repeats, from being printed where logging is not configured."""
    loggers = [logging.getLogger(f"spark_kafka_sink.{name}") for name in ("client", "security.channel_opener")]
    handler = logging.NullHandler()
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
