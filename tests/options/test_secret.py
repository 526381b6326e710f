"""References in values, and text that nobody sees."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.options.secret import DEFAULT_PROVIDERS, Providers, Secret, TextWithReferences, providers_of, resolve
from tests.every import every

VALUE = "a\"b'c\\d}${env:NOT_AGAIN}"
KAFKAS = "org.apache.kafka.common.config.provider."


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("A_SECRET", VALUE)
    (tmp_path / "all.properties").write_text("a.b = one\\u0021\nc:d = two\nlast = three \n", encoding="utf-8")
    (tmp_path / "password").write_text(VALUE, encoding="utf-8")
    (tmp_path / "echoed").write_text("four\n", encoding="utf-8")
    (tmp_path / "below").mkdir()
    return tmp_path


def test_a_reference_becomes_what_it_names(folder: Path) -> None:
    for text, value in {
        "${env:A_SECRET}": VALUE,
        "${env::A_SECRET}": VALUE,
        "<${env:A_SECRET}|${env:A_SECRET}>": f"<{VALUE}|{VALUE}>",
        f"${{file:{folder}/all.properties:a.b}}": "one!",
        f"${{file:{folder}/all.properties:last}}": "three ",
        f"${{directory:{folder}:password}}": VALUE,
        f"${{directory:{folder}:echoed}}": "four",
        "no $ {env:X} ${env} ${ $": "no $ {env:X} ${env} ${ $",
        "": "",
    }.items():
        assert resolve(text) == value
        assert Secret(text).reveal() == value


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("${env:NOT_THERE}", "environment variable NOT_THERE is not set in this process"),
        ("${env:/a:NOT_THERE}", "environment variables have no path: write"),
        ("${file:key}", "the path is missing: write"),
        ("${file:FOLDER/none.properties:key}", "FOLDER/none.properties is not a file that this process"),
        ("${file:FOLDER/all.properties:none}", "FOLDER/all.properties has no entry none, as seen by this process"),
        ("${file:FOLDER:key}", "FOLDER is not a file that"),
        ("${directory:echoed}", "the directory is missing: write"),
        ("${directory:FOLDER:none}", "FOLDER/none is not a file that"),
        ("${directory:FOLDER:below}", "FOLDER/below is not a file that"),
        ("${directory:FOLDER/below:../password}", "the part after the last colon must be the name of a file in that directory"),
        ("${directory:FOLDER/below:..}", "the part after the last colon must be the name of a file in that directory"),
    ],
)
def test_one_that_cannot_be_read_is_named_with_the_process(folder: Path, reference: str, said: str) -> None:
    reference = reference.replace("FOLDER", str(folder))
    with pytest.raises(OptionError) as caught:
        resolve(f"hunter2{reference}hunter2")
    assert str(caught.value).startswith(f"[OPTION] {reference}: {said.replace('FOLDER', str(folder))}")
    assert "hunter2" not in str(caught.value)
    assert caught.value.facts == {"reference": reference}


@pytest.mark.parametrize("text", ["${vault:secret/kafka:hunter2}", "hunter2${hunter2:hunter2}", "${:hunter2}"])
def test_an_unknown_provider_is_an_error_that_quotes_nothing(text: str) -> None:
    with pytest.raises(
        OptionError, match=r"to an unknown provider; must be one of env, file, directory. If the value contains"
    ) as caught:
        resolve(text)
    assert "hunter2" not in str(caught.value)


def test_a_file_that_is_replaced_is_seen_at_the_next_use(folder: Path) -> None:
    secret = Secret(f"${{directory:{folder}:password}}")
    assert secret.reveal() == VALUE
    (folder / "password").write_text("rotated", encoding="utf-8")
    assert secret.reveal() == "rotated"


def test_a_file_that_is_too_large_or_not_text_is_refused(folder: Path) -> None:
    (folder / "large").write_bytes(b"x" * (1024 * 1024 + 1))
    (folder / "bytes").write_bytes(b"\xff\xfe")
    for name, said in (("large", "is larger than 1,048,576 bytes"), ("bytes", "is not valid UTF-8")):
        with pytest.raises(OptionError, match=said):
            resolve(f"${{directory:{folder}:{name}}}")


def test_what_is_wrong_in_a_file_is_said_without_its_content(folder: Path) -> None:
    (folder / "all.properties").write_text("password=hunter2\\u12", encoding="utf-8")
    with pytest.raises(OptionError, match=r"is not a valid properties file: line 1") as caught:
        resolve(f"${{file:{folder}/all.properties:password}}")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


# Secrets


def test_a_secret_is_hidden_wherever_python_shows_things() -> None:
    secret = Secret("hunter2")
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret!r:>3}",
        "{} {!r}".format(secret, secret),  # noqa: UP032
        repr([secret]),
        repr({1: secret}),
    ]
    assert "hunter2" not in "".join(shown)
    assert repr(secret) == "[hidden]"


def test_secrets_are_equal_by_their_text_and_pickle() -> None:
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert {Secret("a"): 1}[pickle.loads(pickle.dumps(Secret("a")))] == 1
    assert Secret("${env:A}") != Secret("${env:A}", None)


def test_text_of_a_secret_that_is_final_is_not_looked_at_for_references() -> None:
    assert Secret("${env:NOT_THERE}", None).reveal() == "${env:NOT_THERE}"


# Kafka's config.providers


def providers(**options: str) -> Providers:
    return providers_of({name.replace("__", "."): value for name, value in options.items()})


def configured(names: str, classes: Mapping[str, str], **parameters: str) -> Providers:
    options = {f"config.providers.{name}.class": kind for name, kind in classes.items()}
    given = {f"config.providers.{name.replace('__', '.')}": value for name, value in parameters.items()}
    return providers_of({"config.providers": names, **options, **given})


def test_there_are_three_without_being_configured() -> None:
    assert providers_of({}) == DEFAULT_PROVIDERS
    assert [name for name, _ in DEFAULT_PROVIDERS] == ["env", "file", "directory"]


def test_configured_ones_have_their_own_names_and_replace_the_three(folder: Path) -> None:
    mine = configured("here, e", {"here": f"{KAFKAS}DirectoryConfigProvider", "e": "shaded.EnvVarConfigProvider"})
    assert resolve(f"${{here:{folder}:echoed}}${{e:A_SECRET}}", mine) == f"four{VALUE}"
    with pytest.raises(OptionError, match=r"must be one of here, e\."):
        resolve("${env:A_SECRET}", mine)


def test_a_kafka_name_needs_no_class() -> None:
    assert configured("env,file", {}) == DEFAULT_PROVIDERS[:2]


def test_the_allowlist_matches_whole_names(folder: Path) -> None:
    mine = configured("env", {}, env__param__allowlist__pattern="A_.*|B")
    assert resolve("${env:A_SECRET}", mine) == VALUE
    with pytest.raises(OptionError, match=r"\$\{env:BA\}: BA does not match allowlist\.pattern"):
        resolve("${env:BA}", mine)


@pytest.mark.parametrize("name", ["file", "directory"])
def test_only_allowed_paths_are_read(folder: Path, name: str) -> None:
    allowed = str(folder / "below") if name == "directory" else f"/nowhere,{folder}/below/"
    mine = configured(name, {}, **{f"{name}__param__allowed__paths": allowed})
    (folder / "below" / "x").write_text("a=1", encoding="utf-8")
    inside = {"file": "/below/x:a", "directory": "/below:x"}[name]
    assert resolve(f"${{{name}:{folder}{inside}}}", mine) == {"file": "1", "directory": "a=1"}[name]
    for outside in ("", "/below/..", "/belowed"):
        with pytest.raises(OptionError, match=r"the path is not in allowed\.paths"):
            resolve(f"${{{name}:{folder}{outside}:echoed}}", mine)


@every(
    "options, said",
    [
        ({"config.providers": " "}, "option config.providers: must be a comma-separated list of provider names"),
        (
            {"config.providers.env.class": f"{KAFKAS}EnvVarConfigProvider"},
            "option config.providers: must be a comma-separated list",
        ),
        ({"config.providers": "vault"}, "option config.providers.vault.class: must be one of org.apache.kafka"),
        (
            {"config.providers": "v", "config.providers.v.class": "io.strimzi.kafka.KubernetesSecretConfigProvider"},
            "option config.providers.v.class: must be one of org.apache.kafka",
        ),
        (
            {"config.providers": "env", "config.providers.env.param.allowed.paths": "/a"},
            "option config.providers.env.param.allowed.paths: config.providers does not list",
        ),
        (
            {"config.providers": "env", "config.providers.env.param.allowlist.pattern": "("},
            "option config.providers.env.param.allowlist.pattern: not a valid regular expression",
        ),
        (
            {"config.providers": "file", "config.providers.file.param.allowed.paths": "a/b"},
            "option config.providers.file.param.allowed.paths: must be a comma-separated list of absolute paths",
        ),
    ],
)
def test_what_is_wrong_with_them_is_said(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError) as caught:
        providers_of(options)
    assert str(caught.value).startswith(f"[OPTION] {said}")
    assert caught.value.facts["option"] in said


def test_text_keeps_its_providers_when_it_is_pickled(folder: Path) -> None:
    mine = configured("e", {"e": "EnvVarConfigProvider"})
    text = TextWithReferences("${e:A_SECRET}", mine)
    assert resolve(pickle.loads(pickle.dumps(text))) == VALUE
