"""The project's own files agree with each other: packaging, constraints, make targets, the compose file."""

from __future__ import annotations

import importlib.resources
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.every import every
from tests.kafka.versions import DEFAULT, patch_of

ROOT = Path(__file__).parents[1]
COMPOSE_FILE = ROOT / "docker-compose.yml"
ADDRESS = "127.0.0.1:9092"
# These tests may run under make, which tells a make inside of it to say more.
OUTSIDE = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}


def project() -> Mapping[str, Any]:
    table: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def runtime_requirements() -> list[Requirement]:
    return [Requirement(line) for line in project()["dependencies"]]


def dev_requirements() -> list[Requirement]:
    extras = project()["optional-dependencies"]
    every = [Requirement(line) for lines in extras.values() for line in lines]
    return [requirement for requirement in every if requirement.name != project()["name"]]


def constraints() -> dict[str, str]:
    lines = [line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return {canonicalize_name(name): version for name, _, version in lines}


def kafka_service() -> dict[str, Any]:
    service: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text())["services"]["kafka"]
    return service


def kafka_version() -> str:
    return patch_of(DEFAULT)


# Whose next version another dependency warns of or fails with; pyproject.toml says why.
CAPPED = {"pandas", "pytest"}


@every("requirement", runtime_requirements() + dev_requirements())
def test_a_dependency_has_a_lower_and_no_upper_bound(requirement: Requirement) -> None:
    expected = ["<", ">="] if requirement.name in CAPPED else [">="]
    assert sorted(specifier.operator for specifier in requirement.specifier) == expected


@every("requirement", runtime_requirements() + dev_requirements())
def test_the_constraints_hold_a_version_that_is_allowed(requirement: Requirement) -> None:
    assert constraints()[canonicalize_name(requirement.name)] in requirement.specifier


def test_the_package_is_typed() -> None:
    assert (importlib.resources.files("spark_kafka_sink") / "py.typed").is_file()


def test_make_alone_prints_the_targets_and_does_nothing_else() -> None:
    printed = subprocess.run(["make"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=30, env=OUTSIDE).stdout
    for target in ("setup", "demo", "check", "test-quick", "test", "test-all", "docs", "dist", "bench", "clean"):
        assert re.search(rf"^make {target} +\S", printed, re.MULTILINE)
    assert all(line.startswith("make ") for line in printed.splitlines())


def test_no_tracked_file_is_binary() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, timeout=30).stdout
    files = [ROOT / name for name in listed.decode().split("\0") if name]
    assert [file for file in files if file.is_file() and b"\0" in file.read_bytes()] == []


def test_compose_runs_the_kafka_that_the_tests_run() -> None:
    assert kafka_service()["image"] == f"apache/kafka:{kafka_version()}"


def test_compose_listens_only_on_the_loopback_address_the_tests_use() -> None:
    service = kafka_service()
    assert service["ports"] == [f"{ADDRESS}:9092"]
    assert f"HOST://{ADDRESS}" in service["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")


@pytest.mark.parametrize(
    ("version", "is_enough"), [(None, False), ("1.8.0_402", False), ("11.0.22", False), ("17.0.15", True), ("25", True)]
)
def test_make_looks_for_java(version: str | None, is_enough: bool, tmp_path: Path) -> None:
    make = shutil.which("make")
    assert make is not None
    for name in ("sh", "grep"):
        (tmp_path / name).symlink_to(shutil.which(name) or name)
    if version is not None:
        (tmp_path / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
        (tmp_path / "java").chmod(0o755)
    done = subprocess.run(
        [make, "java"], cwd=ROOT, env={"PATH": str(tmp_path)}, check=False, capture_output=True, text=True, timeout=30
    )
    assert (done.returncode == 0) is is_enough
    assert ("install Java 17" in done.stderr) is not is_enough


@pytest.mark.parametrize("name", ["audit.yml", "ci.yml", "release.yml"])
def test_workflows_call_targets_of_make_and_get_few_rights(name: str) -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows" / name).read_text())
    assert workflow["permissions"] == {"contents": "read"}
    declared = set(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[0].split())
    steps = [step for job in workflow["jobs"].values() for step in job.get("steps", [])]
    called = {step["run"].split()[1] for step in steps if step.get("run", "").startswith("make ")}
    assert called <= declared


def test_a_release_is_what_ci_has_built_and_is_signed() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert jobs["ci"] == {"uses": "./.github/workflows/ci.yml"}
    assert [jobs[name]["needs"] for name in ("build", "attest", "publish", "release")] == ["ci", "build", "attest", "publish"]
    used = {step["uses"].partition("@")[0] for job in jobs.values() for step in job.get("steps", []) if "uses" in step}
    assert {"actions/attest-build-provenance", "actions/attest-sbom", "pypa/gh-action-pypi-publish"} <= used
    assert not re.search(r"secrets\.|password", (ROOT / ".github/workflows/release.yml").read_text())


def test_what_is_released_is_made_by_pinned_code_and_apart_from_the_rights_to_release() -> None:
    workflows = {
        name: yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text()) for name in ("audit", "ci", "release")
    }
    steps = [step for each in workflows.values() for job in each["jobs"].values() for step in job.get("steps", [])]
    assert [step["uses"] for step in steps if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step.get("uses", f"x@{'0' * 40}"))] == []

    jobs = workflows["release"]["jobs"]
    runs = {name: [step["run"] for step in job.get("steps", []) if "run" in step] for name, job in jobs.items()}
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["attest", "publish"]
    assert not runs["attest"] + runs["publish"]
    assert "permissions" not in jobs["build"]
    installs = re.findall(r"pip install.*", "\n".join(runs["build"]))
    assert installs
    assert all("--require-hashes" in line or "--no-index" in line for line in installs)


def test_both_ci_run_the_same_make_targets() -> None:
    """The public one runs `make dist` and other Pythons as well."""
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"].values()
    lines = [step.get("run", "") for job in jobs for step in job["steps"]]
    public = {line.replace(" PYTHON=python", "") for line in lines if line.startswith("make ")}
    own = set(re.findall(r"^make .*", (ROOT / ".ci/run").read_text(), re.MULTILINE))
    assert own
    assert public - own == {"make test-quick", "make dist"}
    assert own <= public
