"""The error for a row that a format cannot hold, while its path is still being found."""

from __future__ import annotations


class BadRowError(Exception):
    """A row that a format cannot hold. `path` leads to the value inside of it."""

    def __init__(self, row: int, problem: str, path: str = "") -> None:
        super().__init__(row, problem, path)
        self.row, self.problem, self.path = row, problem, path

    def __str__(self) -> str:
        return f"{self.path.lstrip('.')}: {self.problem}" if self.path else self.problem

    def inside(self, row: int, step: str) -> BadRowError:
        """Returns the error of the row that contains this value. `step` leads from that row to the value."""
        return BadRowError(row, self.problem, step + self.path)
