"""One thing to ask of one broker, and what can come back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from spark_kafka_sink.client.connections import Body
from spark_kafka_sink.errors import PeerError
from spark_kafka_sink.protocol.api import AnyApi
from spark_kafka_sink.protocol.fields import Message

Answer: TypeAlias = Message | PeerError
"""An answer as it came, whatever error code is in it; or why there is none: the request may or may not have been carried out."""


@dataclass(frozen=True, slots=True)
class Question:
    """node_id: a broker's; None for any. api: `limited_to` one version where that must be the one. body: as for NetworkClient."""

    node_id: int | None
    api: AnyApi
    body: Body
