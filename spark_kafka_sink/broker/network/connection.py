"""A connection as its Processor sees it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Flag, auto

from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.broker.network.response import Response
from spark_kafka_sink.broker.network.session import Session


class MutedBy(Flag):
    """Why a connection is not read from (Kafka's ChannelMuteState); it is while any reason is left.

    REQUEST: from a request's arrival until its answer is out. THROTTLE: for as long as an answer told the client to wait.
    """

    NOTHING = 0
    REQUEST = auto()
    THROTTLE = auto()


@dataclass(slots=True)
class Connection:
    """`request`: the one that is being served, from its arrival until its answer is out. `response`: what is being sent.

    `is_limited`: until its client has logged in it may send small frames only.
    """

    connection_id: int
    session: Session
    muted_by: MutedBy = MutedBy.NOTHING
    request: Request | None = None
    response: Response | None = None
    is_limited: bool = False

    @property
    def peer(self) -> str:
        return f"{self.session.client_host}:{self.session.client_port}"
