"""Who was asked for metadata and what each said: for the error text of who waited in vain.

Java's text names the topic and the time only, and leaves why to the debug log; in a Spark task nobody has that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# A bound, for brokers and topics come and go for as long as a producer lives; far over what one cluster has.
_MOST = 1000
# Brokers that one text names.
_MOST_NAMED = 20


@dataclass(slots=True)
class _Said:
    text: str
    times: int
    last: int


class BrokerAnswers:
    """The last thing each broker said, of a topic or by not answering at all, and how often in a row. Not thread-safe."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str | None], _Said] = {}
        self._count = 0
        self._asking: tuple[str, str] | None = None

    def mark(self) -> int:
        """Now, as `about` understands it."""
        return self._count

    def asking(self, node_label: str, doing: str) -> None:
        """A broker is being asked (`doing`, of the broker: "no answer yet", "being connected to"). One is at a time."""
        self._asking = node_label, doing

    def failed(self, node_label: str, error: str) -> None:
        self._asking = None
        self._add(node_label, None, error)

    def answered(self, node_label: str, of_topics: Mapping[str, str | None]) -> None:
        """A broker answered; of each topic it said this, or None: all is well with it."""
        self._asking = None
        self._said.pop((node_label, None), None)
        for topic, text in of_topics.items():
            if text is None:
                self._said.pop((node_label, topic), None)
            else:
                self._add(node_label, topic, text)

    def about(self, topic: str, since: int) -> str:
        """What was said of a topic after the mark `since`, and who owes an answer now; empty when nobody was asked."""
        texts = [
            f"{node_label}: {said.text}" + (f" ({said.times} times)" if said.times > 1 else "")
            for (node_label, of), said in self._said.items()
            if of in (None, topic) and said.last > since
        ]
        if self._asking is not None:
            texts.append(": ".join(self._asking))
        left_out = [f"and {len(texts) - _MOST_NAMED} before"] if len(texts) > _MOST_NAMED else []
        return "; ".join([*texts[-_MOST_NAMED:], *left_out])

    def _add(self, node_label: str, topic: str | None, text: str) -> None:
        before = self._said.pop((node_label, topic), None)
        self._count += 1
        times = before.times + 1 if before is not None and before.text == text else 1
        self._said[node_label, topic] = _Said(text, times, self._count)
        if len(self._said) > _MOST:
            del self._said[next(iter(self._said))]
