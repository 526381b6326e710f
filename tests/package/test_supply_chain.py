"""The scripts behind `make audit` and `make test-minimal`: no audit passes unseen, and each lower bound is tried."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.package.audit import NOT_DONE, PASSED, VULNERABLE, verdict
from tests.package.minimal import OF_USERS, lowest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

CLEAN = {"name": "numpy", "version": "2.0", "vulns": []}
BAD = {"name": "lz4", "version": "4.3", "vulns": [{"id": "PYSEC-1", "fix_versions": ["4.4"]}]}
SKIPPED = {"name": "click", "skip_reason": "Dependency not found on PyPI and could not be audited: click (8.1)"}


def test_an_audit_of_every_package_passes() -> None:
    assert verdict([CLEAN], 1) == (PASSED, ["1 packages were audited, none has a known vulnerability"])


def test_a_vulnerability_is_named_with_the_version_that_mends_it() -> None:
    code, lines = verdict([CLEAN, BAD, SKIPPED], 3)
    assert code == VULNERABLE
    assert "lz4 4.3: PYSEC-1, fixed in 4.4" in lines


@pytest.mark.parametrize("found", [[], [CLEAN], [CLEAN, SKIPPED], [SKIPPED, SKIPPED]])
def test_an_audit_that_has_not_seen_every_package_does_not_pass(found: list[dict[str, object]]) -> None:
    """pip-audit itself succeeds without a word if the database knows none of the packages."""
    code, lines = verdict(found, 2)
    assert code == NOT_DONE
    assert "NOT done" in lines[0]


def test_the_lowest_versions_are_those_of_every_requirement_of_users() -> None:
    bounds = lowest(PROJECT)
    assert bounds["pyspark"] == "4.0"
    assert {"numpy", "pyarrow", "pandas", "cryptography", "botocore", "confluent-kafka", "jsonschema"} <= bounds.keys()


def test_extras_of_users_are_all_but_those_of_developers_and_kerberos() -> None:
    assert set(OF_USERS) == set(PROJECT["optional-dependencies"]) - {"all", "dev", "docs", "kerberos"}
