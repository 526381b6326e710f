"""AWS Signature Version 4 in a query string, for the action kafka-cluster:Connect, which MSK accepts as a login.

botocore can sign as well, and tests compare with it. It is not used because it logs what it signs, including session tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

LIFETIME_S: Final = 900
"""How long a signature is valid, as in Amazon's clients (AWS4SignedPayloadGenerator.EXPIRY_DURATION_MINUTES)."""

_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "kafka-cluster"
_EMPTY_BODY: Final = hashlib.sha256(b"").hexdigest()
_REGION: Final = re.compile(
    r"(?<![a-z0-9-])"
    r"((?:us|eu|ap|sa|ca|me|af|il|mx|cn|us-gov|us-iso[a-z]?|eu-isoe|eusc-de)"
    r"-(?:north|south|east|west|central|northeast|northwest|southeast|southwest)-[1-9])"
    r"(?![a-z0-9-])",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """A signing key. token: session token of temporary credentials, or empty. repr shows only the key's id."""

    key_id: str
    secret_key: str
    token: str = ""

    def __repr__(self) -> str:
        return f"AwsCredentials({self.key_id})"


def region_of(host: str) -> str | None:
    """Returns the region in a broker's host name such as b-1.x.kafka.eu-west-1.amazonaws.com; None for other names."""
    match = _REGION.search(host)
    return match[1].lower() if match else None


def signed_query(credentials: AwsCredentials, host: str, region: str, now_s: float) -> Mapping[str, str]:
    """Returns the parameters of a signed GET of https://host/, in the order of botocore's URLs; the signature is last.

    Args:
        host: The host that the signature is for.
        now_s: Current time in seconds since the epoch.
    """
    time = datetime.fromtimestamp(now_s, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = (time[:8], region, _SERVICE, "aws4_request")
    query = {
        "Action": f"{_SERVICE}:Connect",
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": "/".join((credentials.key_id, *scope)),
        "X-Amz-Date": time,
        "X-Amz-Expires": str(LIFETIME_S),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.token:
        query["X-Amz-Security-Token"] = credentials.token
    request = "\n".join(("GET", "/", encoded(dict(sorted(query.items()))), f"host:{host}\n", "host", _EMPTY_BODY))
    text = "\n".join((_ALGORITHM, time, "/".join(scope), hashlib.sha256(request.encode()).hexdigest()))
    key = b"AWS4" + credentials.secret_key.encode()
    for part in (*scope, text):
        key = hmac.digest(key, part.encode(), "sha256")
    return query | {"X-Amz-Signature": key.hex()}


def encoded(query: Mapping[str, str]) -> str:
    """Returns parameters as a query string. All characters except RFC 3986's unreserved ones are encoded."""
    return "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query.items())
