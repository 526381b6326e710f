"""Why a connection is not read from (Kafka's ChannelMuteState): it is while any reason is left."""

from __future__ import annotations

from enum import Flag, auto


class MutedBy(Flag):
    """REQUEST: from a request's arrival until its answer is out. THROTTLE: for as long as an answer told the client to wait."""

    NOTHING = 0
    REQUEST = auto()
    THROTTLE = auto()
