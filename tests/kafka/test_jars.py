"""Jars are downloaded once, whole or not at all, outside the repository."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.kafka.jars import JarsUnavailableError, jars, main

JAR = "<?xml version='1.0'?><project/>"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "spark-kafka-sink"


@pytest.fixture
def pom(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pom.xml").write_text(JAR)
    return folder / "pom.xml"


def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> Path:
    """Puts a program named mvn first on the PATH; $TARGET is where it is asked to copy to. Returns its list of calls."""
    tools, calls = tmp_path / "tools", tmp_path / "calls"
    tools.mkdir()
    (tools / "mvn").write_text(f'#!/bin/sh\necho "$@" >> {calls}\nTARGET="$(pwd)"\n{script}\n')
    (tools / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    return calls


def test_jars_are_copied_once(tmp_path: Path, cache: Path, pom: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = maven(tmp_path, monkeypatch, "touch $TARGET/a.jar")
    assert jars(pom) == jars(pom)
    assert [path.name for path in jars(pom).iterdir()] == ["a.jar"]
    assert jars(pom).parent == cache
    assert len(calls.read_text().splitlines()) == 1
    assert "dependency:copy-dependencies" in calls.read_text()


def test_a_failed_copy_leaves_nothing_and_says_what_maven_said(
    tmp_path: Path, cache: Path, pom: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven(tmp_path, monkeypatch, "touch $TARGET/half.jar; echo no route to the repository; exit 1")
    with pytest.raises(JarsUnavailableError, match=r"(?s)exit code 1.*no route to the repository"):
        jars(pom)
    assert [path.suffix for path in cache.iterdir()] == [".lock"]


def test_without_maven_the_error_says_so(cache: Path, pom: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(JarsUnavailableError, match="is not on the PATH, and"):
        jars(pom)


def test_fetching_ahead_ends_with_one_line_that_has_mavens_first_error(
    tmp_path: Path, cache: Path, pom: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven(tmp_path, monkeypatch, "echo '[ERROR] no route to the mirror'; echo '[ERROR] Re-run Maven with -X'; exit 1")
    with pytest.raises(SystemExit, match=r"^The tests need the jars of project/pom\.xml: .*: \[ERROR\] no route to the mirror$"):
        main([str(pom)])
