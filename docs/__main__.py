"""Writes the pages that are generated from the code: `python -m docs`.

With `--check` it changes nothing, and fails if a page is out of date.
"""

from __future__ import annotations

import sys

from docs.pages import FOLDER, PAGES


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    outdated = [name for name, page in PAGES.items() if (FOLDER / name).read_text(encoding="utf-8") != page()]
    for name in outdated:
        print(f"docs/{name} is out of date: run `make docs`" if check else f"docs/{name}", file=sys.stderr)
        if not check:
            (FOLDER / name).write_text(PAGES[name](), encoding="utf-8")
    return 1 if check and outdated else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
