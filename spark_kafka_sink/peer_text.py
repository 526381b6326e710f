"""Text that another machine sent, made fit for an error message."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final

from spark_kafka_sink.secret import HIDDEN

MAX_QUOTED: Final = 300
"""Number of characters that an error message quotes, unless its maker wants another."""

SHORT_SECRET: Final = 3
"""A secret of up to this many characters may be part of an ordinary word."""


def quoted(text: str | bytes, secrets: Iterable[str] = (), most: int = MAX_QUOTED) -> str:
    """Returns another end's text in one printable line of at most `most` characters, with `secrets` hidden.

    An endpoint may repeat in its answer what it was sent, such as a password in the wrong place.
    """
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    # Also as JSON has them, with backslashes before quotes, and with \u for what is not ASCII.
    forms = {
        form for each in secrets if each for form in (each, json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1])
    }
    # Before anything is cut off or left out: what remained of a secret would not be found.
    for form in sorted(forms, key=len, reverse=True):
        # A short one is hidden as a word only, or the letters of other words would go with it.
        pattern = re.escape(form) if len(form) > SHORT_SECRET else rf"(?<!\w){re.escape(form)}(?!\w)"
        shown = re.sub(pattern, HIDDEN, shown)
    shown = " ".join("".join(each if each.isprintable() else " " for each in shown[: 4 * most]).split())
    return shown if len(shown) <= most else f"{shown[:most]}..."
