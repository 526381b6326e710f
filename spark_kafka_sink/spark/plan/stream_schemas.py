"""Keeps the schemas that a stream began with. Spark plans each micro-batch, often in a new process.

A running stream must survive an outage of the registry, and its rows must not change their schema between two micro-batches. So a
file in Spark's folder for temporary files has the schemas. Spark does not tell a data source which run of which query it writes
for: a stream that is started again in the same application, with the same checkpoint, finds the file of the earlier run.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Final

from spark_kafka_sink.formats.schema_serializer import ResolvedSchema
from spark_kafka_sink.options.registry_options import RegistryConfig
from spark_kafka_sink.options.secret import Secret

Schemas = tuple[ResolvedSchema, ...]

_KEY: Final = "kafka-sink-key"
_KEY_BYTES: Final = 32


def kept_schemas(registry: RegistryConfig, named: Iterable[object], find: Callable[[], Schemas]) -> Schemas:
    """Returns the schemas that an earlier micro-batch found, or finds them.

    Args:
        registry: settings of the registry. Streams with different logins do not share schemas.
        named: what the schemas depend on apart from that, and what tells streams apart.
        find: asks the registry.
    """
    # Spark sets it for processes that plan and commit, and removes the folders when the application ends.
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    key = _key(Path(folder)) if folder else None
    if key is None:
        return find()
    # A hash with a secret key: a file's name must not let anyone try passwords.
    text = repr((registry, list(_secrets(registry)), *named))
    file = Path(folder) / f"kafka-sink-schemas-{hmac.digest(key, text.encode(errors='surrogatepass'), 'sha256').hex()[:32]}"
    found = _read(file)
    if found is None:
        found = find()
        _write(file, json.dumps([asdict(schema) for schema in found]).encode())
    return found


def _secrets(settings: Any) -> Iterator[str]:
    """Yields what the representation of settings leaves out."""
    for each in fields(settings):
        value = getattr(settings, each.name)
        if isinstance(value, Secret):
            yield f"{each.name}={value.unresolved()}"
        elif hasattr(value, "__dataclass_fields__"):
            yield from _secrets(value)


def _key(folder: Path) -> bytes | None:
    """Returns the application's key, which its first stream makes; None if there can be no file."""
    file = folder / _KEY
    with suppress(OSError):
        if not file.exists():
            _write(file, secrets.token_bytes(_KEY_BYTES), replaces=False)
        if _is_ours(file) and len(found := file.read_bytes()) == _KEY_BYTES:
            return found
    return None


def _is_ours(file: Path) -> bool:
    return file.lstat().st_uid == os.getuid()


def _read(file: Path) -> Schemas | None:
    """Returns the schemas of a file; None if it does not exist, is damaged, or belongs to another user."""
    try:
        if not _is_ours(file):
            return None
        found = json.loads(file.read_text(encoding="utf-8"))
        return tuple(ResolvedSchema(**{**one, "named": tuple(map(tuple, one["named"]))}) for one in found)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _write(file: Path, data: bytes, *, replaces: bool = True) -> None:
    """Writes a whole file that only this user can read. If that fails, the next micro-batch asks the registry.

    replaces: whether it replaces a file that is there already.
    """
    new = file.with_name(f"{file.name}-{os.getpid()}")
    with suppress(OSError):
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "wb") as opened:
                opened.write(data)
            if replaces:
                new.replace(file)
            else:
                os.link(new, file)
        finally:
            new.unlink(missing_ok=True)
