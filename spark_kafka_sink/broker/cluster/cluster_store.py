"""The cluster's state in a small file that is rewritten with every change. Kafka's controllers store theirs in a log."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from spark_kafka_sink.broker.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from spark_kafka_sink.broker.cluster.credentials import ScramCredential, ScramKey
from spark_kafka_sink.broker.cluster.metadata_image import NO_LEADER, PartitionState, TopicState

FILE = "cluster.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class StoredCluster:
    """The state that survives a restart. `next_producer_id`: any smaller id may have been given out."""

    cluster_id: str
    topics: tuple[TopicState, ...] = ()
    next_producer_id: int = 0
    scram: Mapping[ScramKey, ScramCredential | None] = field(default_factory=dict)
    acls: tuple[Acl, ...] = ()


def write(folder: Path, stored: StoredCluster) -> None:
    """Writes the file atomically, so a crash leaves the old or the new content. Only its owner can read the SCRAM keys."""
    draft = folder / f"{FILE}.tmp"
    with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        # Not json.dump and not indented: with 1,000 partitions, either takes ten times as long.
        file.write(json.dumps(_plain(stored)))
        file.flush()
        os.fsync(file.fileno())
    draft.replace(folder / FILE)


def read(folder: Path) -> StoredCluster | None:
    """Reads the file. Returns None if there is none; raises ValueError for an unknown format."""
    try:
        plain = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        return None
    if plain.get("format") != FORMAT:
        raise ValueError(f"{folder / FILE} has format {plain.get('format')}, which is not supported; it must be {FORMAT}")
    return StoredCluster(
        plain["cluster_id"],
        tuple(_topic(name, topic) for name, topic in plain["topics"].items()),
        plain["next_producer_id"],
        {(each["mechanism"], each["user"]): _scram(each) for each in plain.get("scram", ())},
        tuple(_acl(each) for each in plain.get("acls", ())),
    )


def _plain(stored: StoredCluster) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "cluster_id": stored.cluster_id,
        "next_producer_id": stored.next_producer_id,
        "topics": {
            topic.name: {
                "id": str(topic.topic_id),
                "configs": dict(topic.configs),
                "partitions": [
                    {"replicas": partition.replicas, "leader_epoch": partition.leader_epoch} for partition in topic.partitions
                ],
            }
            for topic in stored.topics
        },
        "scram": [
            {"mechanism": mechanism, "user": user, **_plain_scram(credential)}
            for (mechanism, user), credential in stored.scram.items()
        ],
        "acls": [asdict(acl) for acl in stored.acls],
    }


def _plain_scram(credential: ScramCredential | None) -> dict[str, Any]:
    if credential is None:
        return {"iterations": 0}
    return {
        "salt": credential.salt.hex(),
        "stored_key": credential.stored_key.hex(),
        "server_key": credential.server_key.hex(),
        "iterations": credential.iterations,
    }


def _scram(plain: Mapping[str, Any]) -> ScramCredential | None:
    if not plain["iterations"]:
        return None
    salt, stored_key, server_key = (bytes.fromhex(plain[name]) for name in ("salt", "stored_key", "server_key"))
    return ScramCredential(salt, stored_key, server_key, plain["iterations"])


def _acl(plain: Mapping[str, Any]) -> Acl:
    return Acl(
        plain["principal"],
        AclOperation(plain["operation"]),
        ResourceType(plain["resource_type"]),
        plain["resource_name"],
        PatternType(plain["pattern_type"]),
        Permission(plain["permission"]),
        plain["host"],
    )


def _topic(name: str, plain: Mapping[str, Any]) -> TopicState:
    # No partition has a leader until the brokers are up again.
    partitions = tuple(
        PartitionState(index, tuple(kept["replicas"]), (), NO_LEADER, kept["leader_epoch"])
        for index, kept in enumerate(plain["partitions"])
    )
    return TopicState(name, uuid.UUID(plain["id"]), partitions, plain["configs"])
