"""`make scale`: topics with many partitions, many workers, and transactions of many tasks.

Samples and pictures are saved in build/scale/, and with --keep also in docs/pictures, which fill docs/measurements.md.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import sys
from collections.abc import Sequence

from benchmarks.environment import CHECKOUT

OUTPUT = CHECKOUT / "build" / "scale"
PICTURES = CHECKOUT / "docs" / "pictures"
# Each module has measure(quick: bool, folder: Path), which writes scale_NAME.csv and scale_NAME.svg into the folder,
# and tables() -> str, the Markdown of docs/measurements.md, made from the samples in docs/pictures.
PARTS = ("partitions", "workers", "tasks")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures the parts that are asked for, all by default."""
    asked = _parser().parse_args(arguments)
    OUTPUT.mkdir(parents=True, exist_ok=True)
    for part in asked.only or PARTS:
        print(f"measuring {part}", file=sys.stderr)
        importlib.import_module(f"benchmarks.scale.{part}").measure(asked.quick, OUTPUT)
        if asked.keep:
            for ending in ("csv", "svg"):
                shutil.copy(OUTPUT / f"scale_{part}.{ending}", PICTURES)
    print(f"Kept in {OUTPUT}", file=sys.stderr)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks.scale", description="The sink at a hundred times the usual size.")
    quick = os.environ.get("QUICK", "") not in ("", "0")
    parser.add_argument("--quick", action="store_true", default=quick, help="small sizes, a minute each; QUICK=1 sets it, too")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part; may be repeated")
    parser.add_argument("--keep", action="store_true", help="put samples and pictures into docs/pictures")
    return parser


if __name__ == "__main__":
    sys.exit(main())
