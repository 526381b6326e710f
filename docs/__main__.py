"""Writes the pages that are generated from the code: `python -m docs`."""

from __future__ import annotations

from docs.pages import FOLDER, PAGES

if __name__ == "__main__":
    for name, page in PAGES.items():
        file = FOLDER / name
        made = page()
        if not file.exists() or file.read_text(encoding="utf-8") != made:
            file.write_text(made, encoding="utf-8")
            print(f"docs/{name} was out of date")
