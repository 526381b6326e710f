"""Drivers, which take long to start: those that nobody killed are used again."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.faults.exactly_once.driver import LOCAL, Driver


class Fleet:
    """Takes part in one thread only. folder: takes the drivers' logs. environment, settings: see Driver."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._settings = settings
        self._numbers = count(1)
        self._idle: list[Driver] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        while self._idle:
            self._idle.pop().stop()

    def prepare(self, master: str = LOCAL) -> None:
        """One will be taken soon: it starts now, beside what else is done."""
        if all(driver.master != master for driver in self._idle):
            self._idle.append(self._start(master))

    def take(self, master: str = LOCAL) -> Driver:
        """One that runs nothing, or a new one, which may not be ready yet."""
        for driver in self._idle:
            if driver.master == master:
                self._idle.remove(driver)
                return driver
        return self._start(master)

    def _start(self, master: str) -> Driver:
        folder = self._folder / f"driver-{next(self._numbers)}"
        folder.mkdir()
        return Driver(folder / "log", master, self._environment, self._settings)

    def give_back(self, driver: Driver) -> None:
        """It has run its query to the end."""
        self._idle.append(driver)
