"""What stands more than once in a request, which Kafka refuses wherever it would not know which one holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def repeated(values: Iterable[T]) -> list[T]:
    """Each of them once, in their order."""
    return [value for value, count in Counter(values).items() if count > 1]
