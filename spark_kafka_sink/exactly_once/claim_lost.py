"""The error of who does not own the commit log any more."""

from __future__ import annotations

from spark_kafka_sink.errors import PeerError


class ClaimLostError(PeerError):
    """Somebody else claimed a query's records in the commit log, or nobody knows what became of a record that was written.

    Whoever meets it forgets what he read and begins again: claims, reads, decides. It names the id and what the broker said.
    """

    code = "CLAIM_LOST"
