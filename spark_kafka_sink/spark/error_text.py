"""The text of another program's error for the log: in one line, without passwords. Pure."""

from __future__ import annotations

import re
from typing import Final

from spark_kafka_sink.peer_text import SHORT_SECRET
from spark_kafka_sink.producer.report_facts import printable
from spark_kafka_sink.secret import HIDDEN

_MOST: Final = 300
# A password may have a slash, a question mark or an at sign itself, so a login reaches to the last one before a space.
_LOGIN: Final = re.compile(r"//\S*@")
_QUERY: Final = re.compile(r"\?\S+")


def error_text(error: BaseException) -> str:
    """Returns the text without logins and query strings of URLs, and with escapes for what could move a terminal's cursor."""
    text = str(error)
    # A parser that stops inside a password quotes only its beginning.
    pieces = {piece for login in _LOGIN.findall(text) for piece in re.split(r"[/:?#@]+", login) if piece}
    text = _QUERY.sub("?...", _LOGIN.sub("//", text))
    for piece in sorted(pieces, key=len, reverse=True):
        text = re.sub(rf"(?<!\w){re.escape(piece)}(?!\w)" if len(piece) <= SHORT_SECRET else re.escape(piece), HIDDEN, text)
    return printable(" ".join(text.split()), _MOST)
