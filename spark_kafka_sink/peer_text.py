"""Prepares text from another machine for an error message."""

from __future__ import annotations

import base64
import html
import json
import re
import urllib.parse
from collections.abc import Iterable
from typing import Final

from spark_kafka_sink.options.secret import HIDDEN

MAX_QUOTED: Final = 300
"""Default number of characters that an error message quotes."""

SHORT_SECRET: Final = 3
"""Secrets of at most this length may occur inside ordinary words."""


def quoted(text: str | bytes, secrets: Iterable[str] = (), most: int = MAX_QUOTED) -> str:
    """Returns text from another machine as one printable line of at most `most` characters, with `secrets` hidden.

    Hiding is a second line of defense: text that may repeat a secret in any encoding must not be quoted at all.
    """
    shown = text.decode(errors="replace") if isinstance(text, bytes) else text
    forms = {form for each in secrets if each for form in _forms(each)}
    # Secrets are hidden before the text is truncated, because the remainder of a cut secret would not match.
    for form in sorted(forms, key=len, reverse=True):
        # A short secret is hidden only as a whole word, so that other words keep their letters.
        pattern = re.escape(form) if len(form) > SHORT_SECRET else rf"(?<!\w){re.escape(form)}(?!\w)"
        shown = re.sub(pattern, HIDDEN, shown, flags=re.IGNORECASE if len(form) > SHORT_SECRET else 0)
    shown = " ".join("".join(each if each.isprintable() else " " for each in shown[: 4 * most]).split())
    return shown if len(shown) <= most else f"{shown[:most]}..."


def _forms(secret: str) -> tuple[str, ...]:
    """Returns a secret as JSON, HTML, URLs, hexadecimal and Base64 write it."""
    data = secret.encode(errors="surrogatepass")
    return (
        *(secret, json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1], html.escape(secret)),
        *(urllib.parse.quote(data, safe=""), urllib.parse.quote_plus(data), data.decode("latin-1"), data.hex()),
        *(base64.b64encode(data).decode().rstrip("="), base64.urlsafe_b64encode(data).decode().rstrip("=")),
    )
