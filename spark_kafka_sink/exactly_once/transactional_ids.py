"""The transactional ids of one query, or of one batch job: `prefix.query.token.slot`."""

from __future__ import annotations

from dataclasses import dataclass

_LOG = "log"


@dataclass(frozen=True, slots=True)
class TransactionalIds:
    """prefix: what ACLs are granted on. query_id: Spark's id of the query, or a job's; it has no dot in it."""

    prefix: str
    query_id: str

    @property
    def start(self) -> str:
        """What all of them begin with."""
        return f"{self.prefix}.{self.query_id}."

    @property
    def commit_log(self) -> str:
        """Of who writes this query's records to the commit log."""
        return self.start + _LOG

    def for_slot(self, token: str, slot: int) -> str:
        """Of a Python worker's tasks. token: the worker's own, hexadecimal. slot: 0 for the first of a batch's that it runs."""
        return f"{self.start}{token}.{slot}"

    def owns(self, transactional_id: str) -> bool:
        """Whether it is one of this query's tasks: not another query's, nor the one of the commit log."""
        rest = transactional_id.removeprefix(self.start)
        token, dot, slot = rest.partition(".")
        return rest != transactional_id and bool(dot) and _is_hexadecimal(token) and slot.isascii() and slot.isdecimal()


def _is_hexadecimal(text: str) -> bool:
    return bool(text) and all(each in "0123456789abcdef" for each in text)
