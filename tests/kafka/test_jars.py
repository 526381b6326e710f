"""Jars are downloaded once, whole or not at all, outside the repository."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.kafka import java
from tests.kafka.jars import JarsUnavailableError, cache_dir, jars, main

REPOSITORY = Path(__file__).parents[2]
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


def test_an_archive_is_unpacked(tmp_path: Path, cache: Path, pom: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = maven(tmp_path, monkeypatch, "mkdir $TARGET/lib; touch $TARGET/lib/a.jar")
    pom.write_text("<project><artifactItems></artifactItems></project>")
    assert (jars(pom) / "lib" / "a.jar").is_file()
    assert "dependency:unpack" in calls.read_text()


def test_another_pom_has_another_folder(tmp_path: Path, cache: Path, pom: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maven(tmp_path, monkeypatch, "touch $TARGET/a.jar")
    before = jars(pom)
    pom.write_text(JAR + "<!-- newer -->")
    assert jars(pom) != before


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


def test_the_download_is_announced(
    tmp_path: Path, cache: Path, pom: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    maven(tmp_path, monkeypatch, "touch $TARGET/a.jar")
    jars(pom, what="a thing (1 MB)")
    assert "Downloading a thing (1 MB)" in capsys.readouterr().err
    jars(pom, what="a thing (1 MB)")
    assert capsys.readouterr().err == ""


def test_a_pom_describes_its_own_download(
    tmp_path: Path, cache: Path, pom: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    maven(tmp_path, monkeypatch, "touch $TARGET/a.jar")
    pom.write_text("<project><description>a thing (2 MB)</description></project>")
    jars(pom)
    assert "Downloading a thing (2 MB)" in capsys.readouterr().err


def test_fetching_ahead_ends_with_one_line_that_has_mavens_first_error(
    tmp_path: Path, cache: Path, pom: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maven(tmp_path, monkeypatch, "echo '[ERROR] no route to the mirror'; echo '[ERROR] Re-run Maven with -X'; exit 1")
    with pytest.raises(SystemExit, match=r"^The tests need the jars of project/pom\.xml: .*: \[ERROR\] no route to the mirror$"):
        main([str(pom)])


def test_the_cache_is_outside_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert not cache_dir().is_relative_to(REPOSITORY)


def test_a_java_home_without_java_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="JAVA_HOME"):
        java.java()


@pytest.mark.java
def test_java_comes_from_the_path_without_a_java_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert java.java() == shutil.which("java")
