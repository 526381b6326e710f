"""Prepares text from another machine for an error message."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from spark_kafka_sink.secret import HIDDEN

MAX_QUOTED: Final = 300
"""Default number of characters that an error message quotes."""

SHORT_SECRET: Final = 3
"""Secrets of at most this length may occur inside ordinary words."""


def quoted(text: str | bytes, secrets: Iterable[str] = (), most: int = MAX_QUOTED) -> str:
    """Returns text from another machine as one printable line of at most `most` characters, with `secrets` hidden.

    An endpoint may echo what it received, such as a password in the wrong field.
    """
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    # JSON escapes quotes with backslashes, and may write non-ASCII characters as \u sequences.
    forms = {
        form for each in secrets if each for form in (each, json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1])
    }
    # Secrets are hidden before the text is truncated, because the remainder of a cut secret would not match.
    for form in sorted(forms, key=len, reverse=True):
        # A short secret is hidden only as a whole word, so that other words keep their letters.
        pattern = re.escape(form) if len(form) > SHORT_SECRET else rf"(?<!\w){re.escape(form)}(?!\w)"
        shown = re.sub(pattern, HIDDEN, shown)
    shown = " ".join("".join(each if each.isprintable() else " " for each in shown[: 4 * most]).split())
    return shown if len(shown) <= most else f"{shown[:most]}..."
