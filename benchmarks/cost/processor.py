"""Where a row's CPU time goes in Spark's Python workers, by `perf record`. For `python -m benchmarks.cost --profile`.

`perf` samples all processes 997 times a second, with the stacks that frame pointers give. A sample belongs to the first kind
below that its innermost frame, or in the kernel any frame, matches.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.results import Run
from docs.markdown import table

HERTZ: Final = 997
KERNEL: Final = "[kernel"
KERNEL_KINDS: Final[Mapping[str, str]] = {
    "kernel: page faults": r"exc_page_fault",
    "kernel: memory calls": r"sys_(madvise|munmap|mmap|brk|mprotect|mremap)",
    "kernel: send to Kafka": r"(tcp|inet)_sendmsg",
    "kernel: receive from Spark": r"recvmsg|unix_stream_read|sock_read|sys_read|sys_recv",
    "kernel: waits and wake-ups": r"sys_(futex|epoll|poll|select|pselect|write)",
}
"""Kinds of samples in the kernel, each with an expression for any frame of the stack."""

KINDS: Final[Mapping[str, str]] = {
    "copies (memcpy, memset)": r"mem(cpy|move|set)",
    "lz4": r"lz4|LZ4",
    "zstd": r"zstd|ZSTD|zstandard",
    "crc32c": r"crc32c",
    "Arrow": r"libarrow|pyarrow",
    "numpy": r"numpy",
    "Python": r"python",
}
"""Kinds of samples outside of it, each with an expression for the symbol and the file of the innermost frame."""

RUNS: Final = 6
SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Profile:
    """Samples of the workers. kinds: by kind. innermost: by innermost frame, a symbol with its file. rows: written meanwhile."""

    kinds: Mapping[str, int]
    innermost: Mapping[str, int]
    rows: int

    def micros(self, samples: int) -> float:
        """Returns CPU time per row in microseconds."""
        return samples / HERTZ / self.rows * 1e6


def profiled(run: Callable[[], Run], pids: Container[int]) -> Profile:
    """Samples these processes during some runs. Needs the rights of root."""
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "perf.data")
        process = subprocess.Popen(["perf", "record", "-q", "-a", "-g", "-F", str(HERTZ), "-o", file], stdout=subprocess.DEVNULL)
        try:
            rows = sum(run().rows for _ in range(RUNS))
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
        command = ["perf", "script", "-i", file, "-F", "pid,ip,sym,dso"]
        text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    kinds: Counter[str] = Counter()
    innermost: Counter[str] = Counter()
    for stack in text.split("\n\n"):
        pid, *frames = stack.strip().splitlines() or ["0"]
        if frames and int(pid) in pids:
            names = [frame.strip().partition(" ")[2] for frame in frames]
            kinds[kind_of(names)] += 1
            innermost[names[0]] += 1
    return Profile(kinds, innermost, rows)


def kind_of(frames: Sequence[str]) -> str:
    """Returns the kind of a sample, from its frames, innermost first, each a symbol with its file in brackets."""
    if KERNEL in frames[0]:
        stack = "\n".join(frames)
        return next((kind for kind, frame in KERNEL_KINDS.items() if re.search(frame, stack)), "kernel: other")
    return next((kind for kind, frame in KINDS.items() if re.search(frame, frames[0])), "other")


def profile_table(sink: Profile, floor: Profile) -> str:
    """Returns the time of a row by kind, in the sink and in a data source that drops its input, and the sink's functions."""
    lines = [
        [kind, *(f"{each.micros(each.kinds.get(kind, 0)):.3f}" for each in (sink, floor))]
        for kind in sorted({*sink.kinds, *floor.kinds}, key=lambda kind: -sink.kinds.get(kind, 0))
    ]
    lines.append(["all", *(f"{each.micros(sum(each.kinds.values())):.3f}" for each in (sink, floor))])
    functions = [[name, f"{sink.micros(count):.3f}"] for name, count in Counter(sink.innermost).most_common(SHOWN)]
    head = ["µs of a worker per row", "this sink", "floor"]
    return f"{table(head, lines)}\n{table(['innermost function of this sink', 'µs'], functions)}"
