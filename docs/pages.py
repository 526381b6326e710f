"""Lists every page and picture that is generated from the code or from measurements, whole or in part, with its generator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from benchmarks.cost import page as performance
from docs.api_page import api_page
from docs.cli_page import cli_page
from docs.dashboard import dashboard
from docs.filled_page import broker_page, metrics_page, monitoring_page, scale_page
from docs.options_page import options_page

FOLDER = Path(__file__).parent
PAGES: Mapping[str, Callable[[], str]] = {
    "api.md": api_page,
    "broker.md": broker_page,
    "cli.md": cli_page,
    "grafana/dashboard.json": dashboard,
    "metrics.md": metrics_page,
    "monitoring.md": monitoring_page,
    "options.md": options_page,
    "performance.md": performance.page,
    "scale.md": scale_page,
    **{f"pictures/{name}": partial(performance.picture, name) for name in performance.PICTURES},
    "../README.md": performance.readme,
}
