"""What a commit did."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CommitReport:
    """rows: that this commit made visible; 0 where an earlier one had. own: whether they are those that the batch's tasks have
    just written, and not those of an earlier attempt, which were prepared before that driver died.

    committed, aborted: transactions that were ended. visible_ms: from when the prepared record was written to the last
    transaction's end, 0 where the record was there already. commit_ms: all of commit().
    """

    rows: int
    own: bool
    committed: int
    aborted: int
    visible_ms: int
    commit_ms: int
