"""Reads the claims of a JSON Web Token (RFC 7519). Nothing is verified: the broker does that."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

_SECTIONS: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]*")


def claims(token: str) -> Mapping[str, Any] | None:
    """Returns a token's claims, or None for a token that is not a JWT: an opaque token is valid too."""
    match = _SECTIONS.fullmatch(token)
    if match is None:
        return None
    try:
        header, payload = (json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))) for part in match.groups())
    except (ValueError, RecursionError):
        return None
    return payload if isinstance(header, dict) and isinstance(payload, dict) else None


def expiry(of: Mapping[str, Any]) -> float | None:
    """Returns when claims expire, in seconds since the epoch; None if there is no expiry."""
    return seconds(of.get("exp"))


def seconds(value: object) -> float | None:
    """Returns a number of seconds, which some servers write as text; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def unsigned(of: Mapping[str, object]) -> str:
    """Returns a JWT without a signature (`alg` none), which only a broker for tests accepts."""
    header = json.dumps({"alg": "none"}, separators=(",", ":"))
    payload = json.dumps(of, separators=(",", ":"))
    parts = (base64.urlsafe_b64encode(part.encode()).rstrip(b"=").decode() for part in (header, payload))
    return ".".join(parts) + "."
