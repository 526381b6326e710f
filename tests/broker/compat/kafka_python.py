"""kafka-python's clients, as the tests here want them."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from typing import Any

with warnings.catch_warnings():
    # It reads its schemas by a function of importlib that is deprecated.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

TIMEOUT_S = 30.0


def producer(servers: str, closing: ExitStack, **settings: Any) -> Any:
    made = KafkaProducer(bootstrap_servers=servers, **{"linger_ms": 0, **settings})
    closing.callback(made.close, TIMEOUT_S)
    return made


def consumer(servers: str, closing: ExitStack, *topics: str, **settings: Any) -> Any:
    """Of no group, unless `group_id` says so: nothing is committed by itself."""
    defaults = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}
    made = KafkaConsumer(*topics, bootstrap_servers=servers, **defaults | settings)
    closing.callback(made.close)
    return made


def admin(servers: str, closing: ExitStack) -> Any:
    made = KafkaAdminClient(bootstrap_servers=servers)
    closing.callback(made.close)
    return made
