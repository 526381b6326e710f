"""Python runs this at its start where this folder is on the path: in drivers whose sink is to be broken, and their workers."""

from __future__ import annotations

import os

from tests.faults.exactly_once.broken import VARIABLE, install

if VARIABLE in os.environ:
    install()
