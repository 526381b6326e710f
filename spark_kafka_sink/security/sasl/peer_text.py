"""Text that another machine sent, made fit for an error message."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from spark_kafka_sink.secret import HIDDEN

MAX_QUOTED: Final = 300
"""Number of characters that an error message quotes."""


def quoted(text: str | bytes, secrets: Iterable[str] = ()) -> str:
    """Returns another end's text in one printable line of at most 300 characters, with `secrets` hidden.

    An endpoint may repeat in its answer what it was sent, such as a password in the wrong place.
    """
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    # Also as JSON has them, with backslashes before quotes, and with \u for what is not ASCII.
    forms = {
        form for each in secrets if each for form in (each, json.dumps(each)[1:-1], json.dumps(each, ensure_ascii=False)[1:-1])
    }
    for form in sorted(forms, key=len, reverse=True):
        shown = shown.replace(form, HIDDEN)
    shown = " ".join("".join(each if each.isprintable() else " " for each in shown[: 4 * MAX_QUOTED]).split())
    return shown if len(shown) <= MAX_QUOTED else f"{shown[:MAX_QUOTED]}..."
