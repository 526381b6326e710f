"""The text of another program's error for the log: in one line, without passwords. Pure."""

from __future__ import annotations

import re
from typing import Final

from spark_kafka_sink.options.secret import HIDDEN
from spark_kafka_sink.peer_text import SHORT_SECRET
from spark_kafka_sink.reports.report_facts import printable

_MOST: Final = 300
_READ: Final = 10 * _MOST  # the text may be of any length
_QUERY: Final = re.compile(r"\?\S+")


def error_text(error: BaseException) -> str:
    """Returns the text without logins and query strings of URLs, and with escapes for what could move a terminal's cursor."""
    text = str(error)
    words = text[:_READ].split()
    if len(text) > _READ and words:
        words[-1] = words[-1].partition("//")[0]  # a login that is cut has no end
    # A parser that stops inside a password quotes only its beginning.
    pieces = set[str]()
    for place, word in enumerate(words):
        # A password may have a slash, a question mark or an at sign itself, so a login reaches to the last one of the word.
        before, slashes, rest = word.partition("//")
        login, at, after = rest.rpartition("@")
        if slashes and at:
            pieces.update(re.split(r"[/:?#@]+", login))
        words[place] = _QUERY.sub("?...", f"{before}//{after}" if slashes and at else word)
    text = " ".join(words)
    for piece in sorted(pieces - {""}, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(piece)}(?!\w)" if len(piece) <= SHORT_SECRET else re.escape(piece), HIDDEN, text)
    return printable(text, _MOST)
