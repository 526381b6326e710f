"""`make fuzz`: coverage-guided runs of the decoders, then whole connections, with FRAMES frames of each kind.

Of answers to clients there are a twentieth. SEED repeats a run of the decoders; what threads do in a connection is not repeated.
TARGETS names some of them, with commas. KEEP=1 adds what the run found to the kept corpus.
What made a target fail is in build/fuzz/TARGET/.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.fuzz.connections import CONNECTIONS
from tests.fuzz.targets import TARGETS, keep, kept

BUILD: Final = Path("build/fuzz")
FRAMES: Final = 200_000
_OPTIONS: Final = ("-rss_limit_mb=600", "-timeout=10", "-max_len=4096", "-print_final_stats=1")
_DONE: Final = re.compile(r"DONE\s+cov: (\d+) ft: (\d+)")


def main() -> None:
    frames = int(os.environ.get("FRAMES") or FRAMES)
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1, 1_000_000))
    names = (os.environ.get("TARGETS") or ",".join((*TARGETS, *CONNECTIONS))).split(",")
    logging.getLogger("spark_kafka_sink").addHandler(logging.NullHandler())  # of each hostile frame it would print a line
    print(f"{frames:,} inputs for each of {', '.join(names)}; SEED={seed}", flush=True)
    failed = [name for name in names if not (_connected if name in CONNECTIONS else _fuzzed)(name, frames, seed)]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the inputs are in {BUILD}")


def _fuzzed(name: str, frames: int, seed: int) -> bool:
    folder = BUILD / name
    shutil.rmtree(folder, ignore_errors=True)
    found, seeds = folder / "found", folder / "seeds"
    found.mkdir(parents=True)
    _write(seeds, [*TARGETS[name][1](), *kept(name)])
    begun = time.monotonic()
    command = [sys.executable, "-m", "tests.fuzz.run", name, str(found), str(seeds), f"-runs={frames}", f"-seed={seed}"]
    with (folder / "log.txt").open("w+") as log:
        code = subprocess.call([*command, *_OPTIONS, f"-artifact_prefix={folder}/"], stdout=log, stderr=subprocess.STDOUT)
        log.seek(0)
        text = log.read()
    done = _DONE.search(text)
    covered = f"{int(done[1]):,} branches" if done else "an unknown number of branches"
    print(f"{name}: {'passed' if code == 0 else 'FAILED'}, {covered}, {time.monotonic() - begun:.0f} s", flush=True)
    if code:
        print(text[-4000:])
    elif os.environ.get("KEEP"):
        # libFuzzer has already replaced each input by the shortest that reaches the same code.
        new = [each.read_bytes() for each in found.iterdir()]
        print(f"{name}: {keep(name, [*kept(name), *new])} of {len(new)} found and {len(kept(name))} kept inputs are kept")
    return code == 0


def _connected(name: str, frames: int, seed: int) -> bool:
    begun = time.monotonic()
    try:
        print(f"{name}: passed, {CONNECTIONS[name](frames, seed)}, {time.monotonic() - begun:.0f} s", flush=True)
    except Exception:
        traceback.print_exc()
        print(f"{name}: FAILED", flush=True)
        return False
    return True


def _write(folder: Path, inputs: Iterable[bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for data in inputs:
        (folder / hashlib.sha1(data).hexdigest()).write_bytes(data)


if __name__ == "__main__":
    main()
