"""What goes wrong between bytes and messages, with the path of fields to it; messages.py turns both into errors of errors.py."""

from __future__ import annotations

import struct
from typing import Final, Self


class LocatedError(ValueError):
    """`path` grows from the inner field to the outer ones while the error rises."""

    def __init__(self, cause: str, path: str = "") -> None:
        super().__init__(cause)
        self.cause = cause
        self.path = path

    def inside(self, name: str) -> Self:
        return type(self)(self.cause, f"{name}.{self.path}" if self.path else name)

    def __str__(self) -> str:
        return f"{self.path}: {self.cause}" if self.path else self.cause


class MalformedError(LocatedError):
    """Bytes that are no message."""


class UnwritableError(LocatedError):
    """A value that its field cannot carry."""


UNREADABLE: Final = (MalformedError, struct.error, IndexError, UnicodeDecodeError)
"""All that a reader raises on hostile bytes: struct.error and IndexError where the data ends too early."""


def malformed(error: Exception) -> MalformedError:
    """Any of UNREADABLE as a MalformedError."""
    if isinstance(error, MalformedError):
        return error
    if isinstance(error, UnicodeDecodeError):
        return MalformedError(f"not UTF-8: {error.reason}")
    return MalformedError("the data ends here")
