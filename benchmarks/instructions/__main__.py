"""`python -m benchmarks.instructions`: counts, prints a table, and compares it with the baseline."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.instructions import callgrind
from benchmarks.instructions.counting import MACHINE
from benchmarks.instructions.counts import (
    BASELINE,
    Counter,
    Counts,
    changes,
    differing_facts,
    least,
    load,
    save,
    spread,
    table,
    unknown_paths,
)
from benchmarks.instructions.paths import PARTITIONS, TOPIC
from spark_kafka_sink.broker import EmbeddedBroker

CHECKOUT: Final = Path(__file__).resolve().parents[2]
RENEW: Final = "renew the baseline with `make count WRITE=1`"
# A run takes about 10 s. A busy machine takes several times as long.
TIMEOUT_S: Final = 300.0
_VALGRIND: Final = ("--tool=callgrind", "-q", "--instr-atstart=no", "--compress-strings=no", "--compress-pos=no")
# They decide on the code that runs, such as Arrow's allocator and the number of threads.
_ENVIRONMENT: Final = {
    "PYTHONPATH": str(CHECKOUT),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "LC_ALL": "C.UTF-8",
}
_INHERITED: Final = ("PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR")


class CountingError(RuntimeError):
    """A counting process failed, or there is no baseline."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Counts and compares. Returns 1 if a path grew by more than the tolerance, if it has no baseline, and on errors."""
    try:
        return _counted(_parser().parse_args(arguments))
    except CountingError as error:
        print(error, file=sys.stderr)
        return 1


def _counted(asked: argparse.Namespace) -> int:
    """Does what the command line asks for. Returns the exit code."""
    valgrind = shutil.which("valgrind") if platform.machine() == MACHINE else None
    if asked.write and valgrind is None:
        raise CountingError(f"a baseline needs native counts: install valgrind, on {MACHINE}")
    if not asked.write and not asked.baseline.exists():
        raise CountingError(f"there is no baseline {asked.baseline}: write it with `make count WRITE=1`")
    runs = [_count(valgrind, seed) for seed in range(asked.runs)]
    if len(runs) > 1:
        print(f"Largest difference of {len(runs)} runs:\n{spread(runs)}\n")
    if asked.write:
        save(least(runs), asked.baseline)
        print(table(None, least(runs)))
        return 0
    baseline = load(asked.baseline)
    if any(change.grew for change in changes(baseline, least(runs))):
        runs.append(_count(valgrind, len(runs)))
    return _compared(baseline, least(runs))


def _compared(baseline: Counts, now: Counts) -> int:
    """Prints the comparison. Returns the exit code."""
    print(table(baseline, now))
    for counter in Counter:
        if counter not in now.paths:
            print(f"\n{counter} is not counted: install valgrind, on {MACHINE}")
        elif why := differing_facts(baseline, now, counter):
            print(f"\n{counter} is not compared: {'; '.join(why)}")
    found = changes(baseline, now)
    for change in found:
        print(f"\n{change}")
    unknown = unknown_paths(baseline, now)
    if unknown:
        print(f"\nOnly the baseline or only the code has: {', '.join(unknown)}. To accept this, {RENEW}.")
    grown = [change for change in found if change.grew]
    if grown:
        print(f"\n{len(grown)} of the counts above grew too much. If this is intended, {RENEW}.")
    elif found:
        print(f"\nThe counts above shrank: {RENEW}, so that they do not grow again.")
    elif not unknown:
        print("\nNo count above changed by more than its limit.")
    return 1 if grown or unknown else 0


def _count(valgrind: str | None, seed: int) -> Counts:
    """Counts each path once with each counter. Without valgrind there is only the bytecode.

    seed: the seed of the hashes of strings, which decide on the collisions in the interpreter's caches.
    """
    with EmbeddedBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        bytecode = _run([], seed, "bytecode", broker.bootstrap_servers)
        paths: dict[Counter, Mapping[str, Mapping[str, int]]] = {Counter.BYTECODE: bytecode["paths"]}
        if valgrind is None:
            return Counts(bytecode["facts"], paths)
        with tempfile.TemporaryDirectory() as folder:
            output = f"--callgrind-out-file={folder}/counts"
            facts = _run([valgrind, *_VALGRIND, output], seed, "native", broker.bootstrap_servers)["facts"]
            files = sorted(Path(folder).iterdir(), key=lambda file: int(file.suffix[1:] or 0))
            found = [counts for file in files if (counts := callgrind.read(file.read_text().splitlines())) is not None]
        paths[Counter.LIBRARIES] = {counts.path: counts.libraries for counts in found}
        paths[Counter.SYSTEM] = {counts.path: counts.system for counts in found}
        return Counts(facts, paths)


def _run(wrapper: Sequence[str], seed: int, kind: str, servers: str) -> Any:
    """Runs a counting process. Returns what it prints."""
    command = [*wrapper, sys.executable, "-m", "benchmarks.instructions.counting", kind, servers]
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment = {**inherited, **_ENVIRONMENT, "PYTHONHASHSEED": str(seed)}
    try:
        done = subprocess.run(
            command, env=environment, cwd=CHECKOUT, capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise CountingError(f"counting {kind} took more than {TIMEOUT_S:.0f} s") from None
    if done.returncode:
        raise CountingError(f"counting {kind} failed with exit code {done.returncode}:\n{done.stderr[-4000:]}")
    return json.loads(done.stdout)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks.instructions", description="Count instructions of hot paths.")
    parser.add_argument("--write", action="store_true", help="Write the baseline instead of comparing with it.")
    parser.add_argument(
        "--runs", type=int, default=1, help="Count several times, print how much the counts differ, and use the smallest."
    )
    parser.add_argument("--baseline", type=Path, default=BASELINE, help="Baseline file. Defaults to the committed one.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
