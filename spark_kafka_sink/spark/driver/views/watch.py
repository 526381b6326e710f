"""A view on running queries in a terminal or a notebook. It needs no PySpark, so that the command `watch` has it, too."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, Final, Protocol, TextIO

from spark_kafka_sink.reports.report_html import element, escaped, table_html, text_html
from spark_kafka_sink.reports.report_text import has_blocks
from spark_kafka_sink.spark.driver.views.watch_table import HEADER_WIDTHS, NOTHING, Reading, WatchTable, aligned, cut

# In lines that follow each other the header is repeated.
_HEADER_EVERY: Final = 20
_LEFT_OUT: Final = ("ago", "state", "trend")
"""Lines that follow each other are about micro-batches, each at its own time."""

# Of a notebook. A terminal has its own height.
_MOST_ROWS: Final = 50

_UP: Final = "\x1b[{}F"
_CLEAR_BELOW: Final = "\x1b[J"


class NoAnswerError(Exception):
    """There is nothing to read at present. Its text says why."""


Read = Callable[[], Reading]
"""Returns what is known now. Raises NoAnswerError."""


class Screen(Protocol):
    """A place to show a view: lines in place, or one after the other."""

    def show(self, table: WatchTable, committed: list[str]) -> None:
        """Shows the last reading. committed: the ids of the queries that have committed since the one before."""

    def tell(self, text: str) -> None:
        """Shows why there is no reading."""


def watch(
    read: Read, table: WatchTable, screen: Screen, *, interval_s: float, timeout_s: float | None, again: bool = False
) -> str:
    """Shows readings until Ctrl+C, or until the time has passed.

    Args:
        read: Returns what is known now.
        table: Makes lines of it.
        screen: Where they are shown.
        interval_s: The seconds between two readings.
        timeout_s: The seconds until it returns; None: it waits for Ctrl+C.
        again: Whether a reading that fails is tried again. If not, NoAnswerError is raised.

    Returns:
        Why the last reading failed, or "".
    """
    end = None if timeout_s is None else time.monotonic() + timeout_s
    problem = ""
    with _own_interrupts():
        try:
            while True:
                problem = _shown(read, table, screen, problem, again=again)
                left = interval_s if end is None else min(end - time.monotonic(), interval_s)
                if left <= 0:
                    break
                time.sleep(left)
        except KeyboardInterrupt:
            pass  # the user has seen enough
    return problem


def _shown(read: Read, table: WatchTable, screen: Screen, before: str, *, again: bool) -> str:
    """Reads and shows once. Returns why that failed, or "". before: what the last reading returned."""
    try:
        committed = table.take(read())
    except NoAnswerError as error:
        if not again:
            raise
        if str(error) != before:
            screen.tell(str(error))
        return str(error)
    screen.show(table, committed)
    return ""


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Has Ctrl+C raise KeyboardInterrupt only. PySpark's own handler cancels all jobs, also those of the queries in view."""
    if threading.current_thread() is not threading.main_thread():  # which gets no signals
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)


class Terminal:
    """Replaces the table in place, cut to the size of the terminal. The last one stays."""

    def __init__(self, out: TextIO) -> None:
        """out: a terminal."""
        self._out = out
        self._table: list[str] = []
        self._height = 0

    def show(self, table: WatchTable, committed: list[str]) -> None:
        columns, rows = shutil.get_terminal_size()
        self._table = table.table(max(rows - 4, 1), columns - 1)
        self._draw(self._table)

    def tell(self, text: str) -> None:
        self._draw([*self._table, f"{_clock()} {text}"])

    def _draw(self, lines: list[str]) -> None:
        columns, _ = shutil.get_terminal_size()
        # A line that wraps would be two on the way up.
        shown = [cut(line, columns - 1) for line in lines]
        up = _UP.format(self._height) if self._height else ""
        self._out.write(up + _CLEAR_BELOW + "".join(f"{line}\n" for line in shown))
        self._out.flush()
        self._height = len(shown)


class Lines:
    """Writes a line for each micro-batch that is seen, and for each query that ends, as into a file or a pipe."""

    def __init__(self, out: TextIO, problems: TextIO) -> None:
        """problems: where it is written why there is no reading."""
        self._out = out
        self._problems = problems
        self._written = 0

    def show(self, table: WatchTable, committed: list[str]) -> None:
        kept = [place for place, column in enumerate(table.columns) if column.header not in _LEFT_OUT]
        header = [table.columns[place].header for place in kept]
        for row in table.rows(committed):
            head, line = aligned([header, [row[place] for place in kept]], HEADER_WIDTHS)
            if self._written % _HEADER_EVERY == 0:
                self._out.write(f"{'time':<8}  {head}\n")
            self._out.write(f"{_clock()}  {line}\n")
            self._written += 1
        self._out.writelines(f"{_clock()}  {table.how_ended(query)}\n" for query in table.ended)
        self._out.flush()

    def tell(self, text: str) -> None:
        self._problems.write(f"{_clock()}  {text}\n")
        self._problems.flush()


class NotebookCell:
    """Replaces the table in a cell's output."""

    def __init__(self) -> None:
        self._output: Any = None
        self._text = self._html = ""

    def show(self, table: WatchTable, committed: list[str]) -> None:
        (header, *rows), hidden = table.cells(_MOST_ROWS)
        more = text_html(f"and {hidden:,} more") if hidden else ""
        self._html = table_html(header, [list(map(escaped, row)) for row in rows]) + more if rows else text_html(NOTHING)
        self._text = "\n".join(table.table(_MOST_ROWS))
        self.tell("")

    def tell(self, text: str) -> None:
        html = element(self._html + (text_html(text) if text else ""))
        data = {"text/plain": f"{self._text}\n{text}".strip("\n"), "text/html": html}
        if self._output is None:
            self._output = import_module("IPython.display").display(data, raw=True, display_id=True)
        else:
            self._output.update(data, raw=True)


def screen_of(out: TextIO, problems: TextIO, *, notebook: bool = False) -> Screen:
    """Returns the screen for stdout. problems: where lines say why there is no reading."""
    if notebook:
        return NotebookCell()
    return Terminal(out) if out.isatty() else Lines(out, problems)


def table_for(out: TextIO, *, notebook: bool = False) -> WatchTable:
    """Returns an empty table that `out` can show."""
    return WatchTable(blocks=notebook or has_blocks(getattr(out, "encoding", None) or "ascii"))


def is_notebook() -> bool:
    """Returns whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return shell is not None and "IPKernelApp" in shell.config


def _clock() -> str:
    return f"{datetime.now(UTC).astimezone():%H:%M:%S}"
