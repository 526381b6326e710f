"""The text of another program's error for the log: in one line, without passwords. Pure."""

from __future__ import annotations

import re
from typing import Final

from spark_kafka_sink.producer.report_facts import printable

_MOST: Final = 300
# A password may have a slash, a question mark or an at sign itself, so a login reaches to the last one before a space.
_LOGIN: Final = re.compile(r"//\S*@")
_QUERY: Final = re.compile(r"\?\S+")


def error_text(error: BaseException) -> str:
    """Returns the text without logins and query strings of URLs, and with escapes for what could move a terminal's cursor."""
    return printable(" ".join(_QUERY.sub("?...", _LOGIN.sub("//", str(error))).split()), _MOST)
