"""What is to be done about a request when it has been served (RequestChannel.Response)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from spark_kafka_sink.network.channel import Buffer

if TYPE_CHECKING:
    from spark_kafka_sink.broker.network.request import Request


class ResponseAction(Enum):
    """NO_OP: nothing is sent (acks=0), the connection's next request may come."""

    SEND = auto()
    NO_OP = auto()
    CLOSE_CONNECTION = auto()


@dataclass(frozen=True, slots=True)
class Response:
    """`throttle_ms`: for so long the connection's next request is not read.

    `announced`: where only a part of the frame is sent, the size that it says it has; the connection is closed after it.
    """

    request: Request
    action: ResponseAction
    buffers: Sequence[Buffer] = ()
    throttle_ms: int = 0
    announced: int | None = None
