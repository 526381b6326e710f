"""A job's settings: a TOML file of known sections, and `--set section.name=value` over it."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.outcome import SettingsError
from spark_kafka_sink.options.option import nearest

# Section to the names it may hold; None: any, because another part checks them.
SECTIONS: Mapping[str, frozenset[str] | None] = {
    "spark": None,
    "source": frozenset({"format", "path", "schema", "options"}),
    "columns": frozenset({"key", "value", "headers", "topic", "partition", "timestamp"}),
    "sink": None,
    "query": frozenset({"checkpoint", "trigger", "name"}),
    "verify": frozenset({"columns", "topic", "allow_duplicates", "examples"}),
    "consumer": None,
}

Value = str | int | float | bool
Section = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Settings:
    """All sections, with dotted names: `kafka.linger.ms` of [sink] is one name, written with or without quotes."""

    origin: str
    sections: Mapping[str, Section]

    def section(self, name: str) -> Section:
        return self.sections.get(name, {})

    def texts(self, name: str, prefix: str = "") -> dict[str, str]:
        """A section as options for Spark: true is "true"; only the names under `prefix`, without it."""
        section = self.section(name)
        return {key.removeprefix(prefix): _text(value) for key, value in section.items() if key.startswith(prefix)}

    def text(self, section: str, name: str) -> str | None:
        value = self.section(section).get(name)
        return None if value is None else _text(value)

    def required(self, section: str, name: str) -> str:
        value = self.text(section, name)
        if not value:
            raise self.wrong(section, name, "is required")
        return value

    def flag(self, section: str, name: str) -> bool:
        """False when it is not there."""
        value = self.text(section, name) or "false"
        if value not in ("true", "false"):
            raise self.wrong(section, name, f"{value!r} is not true or false")
        return value == "true"

    def count(self, section: str, name: str, default: int) -> int:
        value = self.text(section, name) or str(default)
        if not value.isdecimal():
            raise self.wrong(section, name, f"{value!r} is not a whole number from 0")
        return int(value)

    def wrong(self, section: str, name: str, problem: str) -> SettingsError:
        return SettingsError(f"{self.origin}: setting {name} in [{section}] {problem}")


def load(path: Path, overrides: Iterable[str] = ()) -> Settings:
    """The settings in `path`, with `section.name=value` of each override over them; SettingsError names what is wrong."""
    document = _read(path)
    sections = {name: dict(_flat(path, name, table)) for name, table in document.items()}
    for override in overrides:
        section, name, value = _override(override)
        sections.setdefault(section, {})[name] = value
    for section, names in sections.items():
        _check_names(str(path), section, names)
    return Settings(str(path), sections)


def _read(path: Path) -> dict[str, object]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: is not TOML: {error}") from None


def _flat(path: Path, prefix: str, table: object) -> Iterator[tuple[str, Value]]:
    """`{kafka: {linger: {ms: 5}}}`, which is how TOML reads a dotted name without quotes, as `kafka.linger.ms`: 5."""
    if not isinstance(table, dict):
        raise SettingsError(f"{path}: setting {prefix} stands outside of a [section]")
    for name, value in table.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{rest}", inner) for rest, inner in _flat(path, f"{prefix}.{name}", value))
        elif isinstance(value, Value):
            yield name, value
        else:
            raise SettingsError(f"{path}: setting {name} in [{prefix}] must be a text, a number, true or false")


def _override(text: str) -> tuple[str, str, str]:
    name, equals, value = text.partition("=")
    section, dot, rest = name.strip().partition(".")
    if not (equals and dot and section and rest):
        raise SettingsError(f"--set {name}: must be section.name=value")
    return section, rest, value.strip()


def _check_names(origin: str, section: str, names: Iterable[str]) -> None:
    if section not in SECTIONS:
        raise SettingsError(f"{origin}: unknown section [{section}]{nearest(section, SECTIONS)}")
    known = SECTIONS[section]
    for name in names:
        if known is not None and name.partition(".")[0] not in known:
            raise SettingsError(f"{origin}: unknown setting {name} in [{section}]{nearest(name, known)}")


def _text(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
