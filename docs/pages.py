"""Lists every page and picture that is generated from the code or from measurements, whole or in part, with its generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.cost import page as performance
from docs.api_page import PAGES as API_PAGES
from docs.cli_page import cli_page
from docs.dashboard import dashboard
from docs.filled_page import TABLES, filled
from docs.options_page import PAGES as OPTIONS_PAGES

FOLDER = Path(__file__).parent
PAGES: Mapping[str, Callable[[], str]] = {
    **API_PAGES,
    "cli.md": cli_page,
    "grafana/dashboard.json": dashboard,
    **OPTIONS_PAGES,
    **{name: partial(filled, name) for name in TABLES},
    **{f"pictures/{name}": partial(performance.picture, name) for name in performance.PICTURES},
    "../README.md": performance.readme,
}
