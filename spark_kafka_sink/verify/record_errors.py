"""Errors about one record: it cannot be decoded, or its value does not fit the column. Reading goes on after them."""

from __future__ import annotations


class UndecodableError(Exception):
    """A key or a value cannot be decoded. The text does not name the record."""

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class MisfitError(Exception):
    """A decoded value is not one of the column's type.

    Attributes:
        path: where it is, such as `.lines[2].price`.
        text: what is wrong.
    """

    def __init__(self, text: str, path: str = "") -> None:
        super().__init__(printable(f"{path.lstrip('.') or 'the value'} {text}"))
        self.path = path
        self.text = text

    def inside(self, path: str) -> MisfitError:
        """Returns the same error as seen from the value that contains this one."""
        return MisfitError(self.text, path + self.path)


def described(error: Exception) -> str:
    """Returns one line about an error of a library. Its text may be long, empty or no valid Unicode."""
    text = " ".join(str(error).split())[:200]
    return printable(f"{text or type(error).__name__} ({type(error).__name__})")


def printable(text: str) -> str:
    """Returns a text that UTF-8 can hold: names in a damaged record may have half of a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode()
