"""The numbers of SCRAM mechanisms in requests (Kafka's ScramMechanism)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MECHANISMS: Final[Mapping[int, str]] = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
