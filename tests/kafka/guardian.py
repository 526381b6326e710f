"""Kills the brokers and removes their data when the process that started them is gone, however it ended.

A process of its own, because a killed one runs no `atexit`. It reads commands from its stdin, which ends when every holder of
the other end is gone; PR_SET_PDEATHSIG would be Linux only and fires when the starting *thread* ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path


class Guardian:
    """The starter's end. Not thread-safe."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__))],
            stdin=subprocess.PIPE,
            text=True,
            bufsize=1,
            start_new_session=True,  # Ctrl-C is for the starter: the guardian outlives it
        )

    def watch_process(self, pid: int) -> None:
        self._say(f"+pid {pid}")

    def forget_process(self, pid: int) -> None:
        """Call it as soon as the process was reaped: from then on the number may be another's."""
        self._say(f"-pid {pid}")

    def watch_folder(self, folder: Path) -> None:
        self._say(f"+dir {folder}")

    def close(self) -> None:
        """Ends the guardian; it cleans up whatever it still watches."""
        if self._process.stdin is not None:
            try:
                self._process.stdin.close()
            except BrokenPipeError:
                pass  # it ended before: the starter has done all the work by now
        self._process.wait(timeout=60)

    def _say(self, line: str) -> None:
        if self._process.stdin is None or self._process.poll() is not None:
            raise RuntimeError("the process that would clean up after the brokers has ended")
        self._process.stdin.write(line + "\n")


def main() -> None:
    pids: set[int] = set()
    folders: set[Path] = set()
    for line in sys.stdin:
        verb, _, argument = line.rstrip("\n").partition(" ")
        if verb == "+pid":
            pids.add(int(argument))
        elif verb == "-pid":
            pids.discard(int(argument))
        elif verb == "+dir":
            folders.add(Path(argument))
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for folder in folders:
        _remove(folder)


def _remove(folder: Path) -> None:
    # A killed process writes on for a moment: what it adds while the tree is being removed takes another round.
    for _ in range(50):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)


if __name__ == "__main__":
    main()
