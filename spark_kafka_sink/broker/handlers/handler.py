"""What a handler is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from spark_kafka_sink.broker.broker_services import BrokerServices
from spark_kafka_sink.broker.network.request import Request
from spark_kafka_sink.protocol.fields import Message

Handler: TypeAlias = Callable[[BrokerServices, Request], Message | None]
"""Gives the answer's body, or None where it has answered by itself or will later. Raises ApiException."""
