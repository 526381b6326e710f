"""A wait that has a deadline: the pauses between tries, and the error that says what came of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from spark_kafka_sink.client.backoff import ExponentialBackoff
from spark_kafka_sink.errors import DeadlineError

_MOST_NAMED = 20


class Waiting:
    """`note` what was asked for and why it is not there, then `again`."""

    def __init__(self, deadline: float, backoff: ExponentialBackoff) -> None:
        """deadline: on time.monotonic's clock."""
        self._begun = time.monotonic()
        self._deadline = deadline
        self._backoff = backoff
        self._tries = 0
        self._said: dict[str, str] = {}

    def note(self, asked: str, said: str) -> None:
        """`asked`: for what, of whom. The last word on it counts."""
        self._said[asked] = said

    def forget(self, asked: str) -> None:
        """It is there."""
        self._said.pop(asked, None)

    def said(self, asked: str) -> str | None:
        return self._said.get(asked)

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._deadline

    def again(self) -> None:
        """Pause before the next try; DeadlineError where there is no time for one."""
        if self.is_over:
            self.fail()
        self.pause()

    def pause(self) -> None:
        pause_s = self._backoff.backoff_ms(self._tries) / 1000
        self._tries += 1
        time.sleep(max(0.0, min(pause_s, self._deadline - time.monotonic())))

    @contextmanager
    def told_as_well(self) -> Iterator[None]:
        """Adds what was noted here to a DeadlineError that is raised inside, by another wait with the same deadline."""
        try:
            yield
        except DeadlineError as error:
            if not self._said:
                raise
            raise DeadlineError(f"{self._text()}; then {error.message}", **error.facts) from error

    def fail(self) -> NoReturn:
        raise DeadlineError(self._text())

    def _text(self) -> str:
        waited_ms = round((time.monotonic() - self._begun) * 1000)
        said = [f"{asked}: {text}" for asked, text in self._said.items()]
        more = [f"and {len(said) - _MOST_NAMED} more"] if len(said) > _MOST_NAMED else []
        tries = "once" if self._tries == 0 else f"{self._tries + 1} times"
        return f"not within {waited_ms:,} ms, asked {tries}: {'; '.join(said[:_MOST_NAMED] + more)}"
