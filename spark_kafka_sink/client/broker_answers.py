"""Who was asked for metadata and what each said: for the error text of who waited in vain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.protocol.error_codes import error_facts

# Brokers come and go, and no error text should name more than that many.
_MOST = 32


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

    def mark(self) -> int:
        """Now, as `about` understands it."""
        return self._count

    def failed(self, node_label: str, error: str) -> None:
        self._add(node_label, None, error)

    def answered(self, node_label: str, topic_errors: Mapping[str, int]) -> None:
        """A broker answered, about each topic with an error code or 0."""
        self._said.pop((node_label, None), None)
        for topic, code in topic_errors.items():
            if code:
                self._add(node_label, topic, error_facts(code).name)
            else:
                self._said.pop((node_label, topic), None)

    def about(self, topic: str, since: int) -> str:
        """What was said of a topic after the mark `since`; empty when nobody was asked."""
        return "; ".join(
            f"{node_label}: {said.text}" + (f" ({said.times} times)" if said.times > 1 else "")
            for (node_label, of), said in self._said.items()
            if of in (None, topic) and said.last > since
        )

    def _add(self, node_label: str, topic: str | None, text: str) -> None:
        before = self._said.pop((node_label, topic), None)
        self._count += 1
        times = before.times + 1 if before is not None and before.text == text else 1
        self._said[node_label, topic] = _Said(text, times, self._count)
        if len(self._said) > _MOST:
            del self._said[next(iter(self._said))]
