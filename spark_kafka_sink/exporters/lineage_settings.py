"""Settings of lineage: `spark.openlineage.*`, as OpenLineage's agent for Spark has them, and the environment. Pure."""

from __future__ import annotations

import re
import unicodedata
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PREFIX: Final = "spark.openlineage."
DEFAULT_NAMESPACE: Final = "default"

_TRANSPORT: Final = f"{PREFIX}transport."
# By the agent's name, which is that of OpenLineage's Java client: the Python client's name.
_RENAMED: Final = {"headers": "custom_headers", "topicName": "topic", "properties": "config"}
# The rest of the name is one key, dots included.
_WHOLE: Final = ("headers", "properties")
# The Python client has no such setting.
_JAVAS_ONLY: Final = ("urlParams", "sslContext")


@dataclass(frozen=True, slots=True)
class OuterRun:
    """The run of another program, such as a scheduler's, that this program is part of."""

    run_id: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class LineageSettings:
    """Facts that all events share, and how events are sent.

    Attributes:
        namespace: That of all jobs.
        app_name: The application's name, as in the names of its jobs.
        spark_version: Spark's version.
        parent: The run that started the application; None if there is none.
        root: The outermost run; None if that is not known.
        transport: Settings of the client's transport; None: the client finds its own.
        is_disabled: Whether nothing is sent.
        problems: Settings that are ignored, and why. They hold no values.
    """

    namespace: str = DEFAULT_NAMESPACE
    app_name: str = "spark"
    spark_version: str = ""
    parent: OuterRun | None = None
    root: OuterRun | None = None
    transport: Mapping[str, Any] | None = field(default=None, repr=False)
    is_disabled: bool = False
    problems: tuple[str, ...] = ()


def lineage_settings(conf: Mapping[str, str], environment: Mapping[str, str], spark_version: str) -> LineageSettings:
    """Returns the settings. Those of Spark's configuration come before OPENLINEAGE_NAMESPACE, _PARENT_ID and _ROOT_PARENT_ID."""
    problems: list[str] = []
    namespace = conf.get(f"{PREFIX}namespace") or environment.get("OPENLINEAGE_NAMESPACE") or DEFAULT_NAMESPACE
    transport: dict[str, Any] = {}  # as the Python client has it
    for name, value in sorted(conf.items()):
        if name.startswith(_TRANSPORT):
            _set(transport, name.removeprefix(_TRANSPORT).split("."), value, name, problems)
    return LineageSettings(
        namespace,
        snake_case(conf.get(f"{PREFIX}appName") or conf.get("spark.app.name") or "spark"),
        spark_version,
        _outer(conf, "parent", environment.get("OPENLINEAGE_PARENT_ID"), namespace, problems),
        _outer(conf, "rootParent", environment.get("OPENLINEAGE_ROOT_PARENT_ID"), namespace, problems),
        transport or None,
        conf.get(f"{PREFIX}disabled", "").strip().lower() == "true",
        tuple(problems),
    )


def _outer(
    conf: Mapping[str, str], kind: str, from_environment: str | None, namespace: str, problems: list[str]
) -> OuterRun | None:
    """Returns the run that three settings name, or else one variable: namespace/name/run id."""
    found = {part: conf.get(f"{PREFIX}{kind}{part}", "") for part in ("RunId", "JobName", "JobNamespace")}
    named = f"{PREFIX}{kind}RunId"
    if not any(found.values()):
        if not from_environment:
            return None
        named = f"OPENLINEAGE_{'ROOT_' if kind == 'rootParent' else ''}PARENT_ID"
        parts = from_environment.rsplit("/", 2)
        if len(parts) != 3:
            problems.append(f"{named} must be namespace/name/run id")
            return None
        found = {"JobNamespace": parts[0], "JobName": parts[1], "RunId": parts[2]}
    if not found["JobName"]:
        problems.append(f"{PREFIX}{kind}JobName is missing")
        return None
    try:
        run_id = str(uuid.UUID(found["RunId"]))
    except ValueError:
        problems.append(f"{named} is not a UUID")
        return None
    return OuterRun(run_id, found["JobNamespace"] or namespace, found["JobName"])


def _set(into: dict[str, Any], path: list[str], value: str, name: str, problems: list[str]) -> None:
    first, rest = path[0], path[1:]
    if first in _JAVAS_ONLY:
        problems.append(f"{name} is not supported by OpenLineage's Python client")
    elif first in ("timeoutInMillis", "timeout") and not rest:
        try:
            into["timeout"] = float(value) / 1000 if first == "timeoutInMillis" else float(value)
        except ValueError:
            problems.append(f"{name} is not a number")
    elif not rest:
        into[_RENAMED.get(first, first)] = value
    else:
        inner = into.setdefault(_RENAMED.get(first, first), {})
        if isinstance(inner, dict):
            _set(inner, [".".join(rest)] if first in _WHOLE else rest, value, name, problems)


def snake_case(name: str) -> str:
    """Returns an application's name as OpenLineage's agent for Spark writes it in job names: `My App` is `my_app`."""
    letters = "".join(each for each in unicodedata.normalize("NFKD", name) if not unicodedata.combining(each))
    words = re.sub(r"([a-z])([A-Z])", r"\1 \2", letters.strip(" -_.:/"))
    words = re.sub(r"(?<!^)([A-Z])([a-z])", r" \1\2", words)
    words = re.sub(r"(\d)([A-Z])", r"\1 \2", words)
    return re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_") or "spark"


def joined(parts: Iterable[str]) -> str:
    """Returns the name of a job from its parts. Dots separate them, so a dot within one becomes an underscore."""
    return ".".join(part.replace(".", "_") for part in parts if part)
