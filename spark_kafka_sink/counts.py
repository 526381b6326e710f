"""Text of counts, such as "1 record" and "2,000 records"."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """Returns a count with its words. `many` defaults to `one` with an s."""
    return f"{count:,} {one if count == 1 else many or f'{one}s'}"


def partition_range(count: int) -> str:
    """Returns the valid partitions of a topic as a clause: "there are 3 partitions, 0 to 2"."""
    return "the only partition is 0" if count == 1 else f"there are {count} partitions, 0 to {count - 1}"
