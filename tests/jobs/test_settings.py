"""Settings: what a TOML file and --set become, and what each mistake is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.outcome import SettingsError
from jobs.settings import Settings, load


def written(folder: Path, text: str) -> Path:
    file = folder / "job.toml"
    file.write_text(text, encoding="utf-8")
    return file


def loaded(folder: Path, text: str, *overrides: str) -> Settings:
    return load(written(folder, text), overrides)


def test_dotted_names_need_no_quotes(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "[sink]\nkafka.linger.ms = 5\nkafka.retry.backoff.ms = 1\nkafka.retry.backoff.max.ms = 2\n")
    quoted = loaded(tmp_path, '[sink]\n"kafka.linger.ms" = 5\n"kafka.retry.backoff.ms" = 1\n"kafka.retry.backoff.max.ms" = 2\n')

    assert settings.texts("sink") == {"kafka.linger.ms": "5", "kafka.retry.backoff.ms": "1", "kafka.retry.backoff.max.ms": "2"}
    assert quoted == settings


def test_true_and_false_are_what_spark_calls_them(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "[sink]\nkafka.enable.idempotence = true\n[verify]\nallow_duplicates = false\n")

    assert settings.texts("sink") == {"kafka.enable.idempotence": "true"}
    assert settings.flag("verify", "allow_duplicates") is False


def test_options_of_a_source_come_without_their_prefix(tmp_path: Path) -> None:
    settings = loaded(tmp_path, '[source]\nformat = "kafka"\noptions.kafka.bootstrap.servers = "a:1"\noptions.subscribe = "t"\n')

    assert settings.texts("source", "options.") == {"kafka.bootstrap.servers": "a:1", "subscribe": "t"}


def test_the_command_line_wins_over_the_file_and_may_add_to_it(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path, '[sink]\ntopic = "a"\n', "sink.topic=b", "sink.kafka.acks=all", "columns.value=a = b", "verify.examples=0"
    )

    assert settings.texts("sink") == {"topic": "b", "kafka.acks": "all"}
    assert settings.texts("columns") == {"value": "a = b"}
    assert settings.count("verify", "examples", 5) == 0


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[sink", "is not TOML"),
        ('topic = "a"', "setting topic stands outside of a [section]"),
        ("[sinks]\na = 1", "unknown section [sinks]; did you mean sink?"),
        ('[source]\nfromat = "csv"', "unknown setting fromat in [source]; did you mean format?"),
        ("[query]\ntriggers.every = 1", "unknown setting triggers.every in [query]"),
        ('[sink]\ntopic = ["a"]', "setting topic in [sink] must be a text, a number, true or false"),
        ("[sink]\nkafka.a.b = [1]", "setting b in [sink.kafka.a] must be a text"),
    ],
)
def test_a_mistake_in_the_file_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, text)

    assert str(caught.value).startswith(f"{tmp_path / 'job.toml'}: ")
    assert problem in str(caught.value)


@pytest.mark.parametrize("override", ["topic=a", "sink.topic", "=a", "sink.=a", ".topic=a"])
def test_a_mistake_on_the_command_line_is_named(tmp_path: Path, override: str) -> None:
    with pytest.raises(SettingsError, match=r"must be section\.name=value"):
        loaded(tmp_path, "", override)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"nowhere\.toml: cannot be read: No such file"):
        load(tmp_path / "nowhere.toml")


def test_values_of_the_wrong_kind_are_told(tmp_path: Path) -> None:
    settings = loaded(tmp_path, '[verify]\nallow_duplicates = "yes"\nexamples = -1\n')

    with pytest.raises(SettingsError, match=r"allow_duplicates in \[verify\] 'yes' is not true or false"):
        settings.flag("verify", "allow_duplicates")
    with pytest.raises(SettingsError, match=r"examples in \[verify\] '-1' is not a whole number"):
        settings.count("verify", "examples", 5)
    with pytest.raises(SettingsError, match=r"format in \[source\] is required"):
        settings.required("source", "format")
