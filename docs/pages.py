"""Every page that is made from the code, or partly, with what makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from docs.api_page import api_page
from docs.broker_page import broker_page
from docs.options_page import options_page

FOLDER = Path(__file__).parent
PAGES: Mapping[str, Callable[[], str]] = {"api.md": api_page, "broker.md": broker_page, "options.md": options_page}
