"""The log of a command: one line per event, as `key=value` pairs or as JSON."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any, Final, TextIO

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
"""Attributes of every log record. Any other attribute comes from `extra`."""


def log_to(stream: TextIO, log_format: str, *, verbose: bool) -> None:
    """Sends this package's log and other packages' warnings to `stream`."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if log_format == "json" else KeyValueFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("spark_kafka_sink").setLevel(logging.DEBUG if verbose else logging.INFO)


class JsonFormatter(logging.Formatter):
    """Formats each event as one JSON object. Times are in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(_event(record), default=str, ensure_ascii=False)


class KeyValueFormatter(logging.Formatter):
    """Formats each event as `time=... level=INFO message="..." topic=events`. Values with spaces are quoted as in JSON."""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={_text(value)}" for name, value in _event(record).items())


def _event(record: logging.LogRecord) -> dict[str, Any]:
    event = {
        "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "level": record.levelname,
        "logger": record.name.removeprefix("spark_kafka_sink."),
        "thread": record.threadName,
        "message": record.getMessage(),
    }
    event |= {name: value for name, value in record.__dict__.items() if name not in _STANDARD}
    if record.exc_info:
        event["error"] = "".join(traceback.format_exception(*record.exc_info)).rstrip()
    return event


def _text(value: object) -> str:
    text = str(value)
    plain = text and text.isprintable() and not any(sign in text for sign in ' "=')
    return text if plain else json.dumps(text, ensure_ascii=False)


def warn(text: str) -> None:
    """Prints a warning to stderr, separately from the log."""
    print(f"Warning: {text}", file=sys.stderr, flush=True)
