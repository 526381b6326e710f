"""Requests that no socket carried, for tests of handlers: what they answered can be looked at."""

from __future__ import annotations

from spark_kafka_sink.broker.network.listener import Listener
from spark_kafka_sink.broker.network.request import DecodedRequest, Request, Response, ResponseAction, Session
from spark_kafka_sink.protocol.all_apis import ALL_APIS
from spark_kafka_sink.protocol.api import ApiKey
from spark_kafka_sink.protocol.fields import Message
from spark_kafka_sink.protocol.messages import RequestHeader, decode_response


class Responses:
    """Where the responses go instead of to a Processor."""

    def __init__(self) -> None:
        self.sent: list[Response] = []

    @property
    def actions(self) -> list[ResponseAction]:
        return [response.action for response in self.sent]

    def answers(self) -> list[tuple[int, Message]]:
        """Correlation id and body of all that was sent, read back from its bytes."""
        return [
            decode_response(response.request.api, response.request.version, b"".join(response.buffers))
            for response in self.sent
            if response.action is ResponseAction.SEND
        ]

    def answer(self) -> Message:
        """The body of the only answer."""
        ((_, body),) = self.answers()
        return body


def request(
    body: Message,
    key: ApiKey,
    version: int | None = None,
    *,
    responses: Responses | None = None,
    session: Session | None = None,
) -> Request:
    """In the API's newest version if none is given."""
    api = ALL_APIS[key]
    version = api.max_version if version is None else version
    header = RequestHeader(key, version, 7, "test")
    decoded = DecodedRequest(header, body, api, version)
    respond = (responses or Responses()).sent.append
    return Request(decoded, session or Session("127.0.0.1", 50_000), Listener(), respond)
