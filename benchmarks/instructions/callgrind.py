"""Reads the files of valgrind's callgrind: native instructions by function, apart from those of the functions that it calls."""

from __future__ import annotations

import re
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

_PATH: Final = "desc: Trigger: Client Request: "
_WHEEL: Final = re.compile(r"/(?:site|dist)-packages/([^/]+?)(?:\.libs)?/")
# A recursive function has one more name for each level.
_LEVEL: Final = re.compile(r"'\d+$")
_UNNAMED: Final = "(no name)"
# C++ templates have names of a few hundred characters.
_LONGEST_NAME: Final = 100


@dataclass(frozen=True, slots=True)
class NativeCounts:
    """The native instructions of one path by function. libraries: in installed packages. system: everywhere else."""

    path: str
    libraries: Mapping[str, int]
    system: Mapping[str, int]


def read(lines: Iterable[str]) -> NativeCounts | None:
    """Reads one file, written with `--compress-strings=no --compress-pos=no`. Returns None for a file of no path.

    The format: `ob=` and `fn=` name the file and the function to which the following counts belong. Each count is the last word
    of a line that begins with a number. The one after a `calls=` line is that of the called function.
    """
    path: str | None = None
    libraries: Tally[str] = Tally()
    system: Tally[str] = Tally()
    object_file = name = ""
    of_callee = False
    for line in map(str.rstrip, lines):
        key, _, value = line.partition("=")
        if line[:1].isdigit():
            if not of_callee:
                wheel = _WHEEL.search(object_file)
                owner = wheel[1] if wheel else PurePosixPath(object_file).name
                (libraries if wheel else system)[f"{owner}: {name}"] += int(line.rpartition(" ")[2])
            of_callee = False
        elif key == "ob":
            object_file = value
        elif key == "fn":
            name = _UNNAMED if value.startswith("0x") else _LEVEL.sub("", value)[:_LONGEST_NAME]
        elif key == "calls":
            of_callee = True
        elif line.startswith(_PATH):
            path = line.removeprefix(_PATH)
    return None if path is None else NativeCounts(path, libraries, system)
