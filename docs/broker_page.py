"""docs/broker.md: written by hand, but for its tables of settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from docs.markdown import table
from spark_kafka_sink.broker.cluster.topic_config import TOPIC_CONFIGS
from spark_kafka_sink.broker.server_properties import SETTINGS

PAGE = Path(__file__).parent / "broker.md"


def broker_page() -> str:
    """The page as it is, with the tables anew."""
    text = PAGE.read_text(encoding="utf-8")
    for what, made in TABLES.items():
        begin, end = f"<!-- made from the code by `make docs`: {what} -->\n", "<!-- end -->"
        pattern = f"({re.escape(begin)}).*?({re.escape(end)})"
        text, count = re.subn(pattern, lambda found, made=made: f"{found[1]}\n{made()}\n{found[2]}", text, flags=re.DOTALL)  # type: ignore[misc]
        assert count == 1, what
    return text


def _settings() -> str:
    rows = (
        [f"`{name}`", _value(setting.default), _value(setting.key.text(setting.key.default)), setting.key.doc]
        for name, setting in sorted(SETTINGS.items())
    )
    return table(["setting", "default", "Kafka's default", "what it is"], rows)


def _topics() -> str:
    rows = (
        [
            f"`{name}`",
            ", ".join(f"`{broker_name}`" for broker_name, _ in key.synonyms) or "none",
            _value(key.text(key.default)),
            key.doc,
        ]
        for name, key in sorted(TOPIC_CONFIGS.items())
    )
    return table(["topic's name", "broker's names", "default", "what it is"], rows)


def _value(text: str | None) -> str:
    return f"`{text}`" if text else "none"


TABLES: Mapping[str, Callable[[], str]] = {"the broker's settings": _settings, "the topics' settings": _topics}
