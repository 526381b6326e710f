"""Questions to brokers, each sent once at most, all on their way at the same time; and the wait for their answers."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

from spark_kafka_sink.client.cluster_metadata import ClusterMetadata
from spark_kafka_sink.client.network_client import ClientResponse, NetworkClient
from spark_kafka_sink.client.question import Answer, Question
from spark_kafka_sink.errors import DisconnectedError
from spark_kafka_sink.network.selector import monotonic_ms
from spark_kafka_sink.protocol.fields import Message


class Exchange:
    """Connects to who is to be asked, sends as much as the connections take, and collects. It is run once.

    A broker that cannot be connected to in one attempt fails what was to be asked of it, so that the caller may find another.
    """

    def __init__(
        self,
        client: NetworkClient,
        metadata: ClusterMetadata,
        questions: Sequence[Question],
        deadline: float,
        patience_ms: int,
        on_answer: Callable[[], None] | None = None,
    ) -> None:
        """patience_ms: how long to wait for one answer, where the deadline (on time.monotonic's clock) leaves as much. on_answer:
        is called as each answer arrives."""
        self._client = client
        self._metadata = metadata
        self._questions = questions
        self._deadline = deadline
        self._patience_ms = patience_ms
        self._on_answer = on_answer
        self._unsent: dict[int, deque[int]] = {}  # numbers of questions by node
        self._attempted: set[int] = set()  # nodes that were connected to since this began
        self._answers: dict[int, Answer] = {}

    def run(self) -> list[Answer]:
        """An answer for each question, in their order."""
        for number, question in enumerate(self._questions):
            self._route(number, question)
        while len(self._answers) < len(self._questions) and self._left_ms() > 0:
            wait_ms = self._send(monotonic_ms())
            if len(self._answers) < len(self._questions):
                for response in self._client.poll(min(wait_ms, self._left_ms()), monotonic_ms()):
                    self._take(response)
        return [self._answers.get(number) or self._overdue(question) for number, question in enumerate(self._questions)]

    def _left_ms(self) -> int:
        return max(0, round((self._deadline - time.monotonic()) * 1000))

    def _route(self, number: int, question: Question) -> None:
        node_id = question.node_id
        if node_id is None:
            node_id = self._client.least_loaded_node(monotonic_ms())
        if node_id is None or node_id not in self._metadata.nodes():
            who = "no broker can be asked now" if node_id is None else f"broker {node_id} is not known"
            known = ", ".join(map(str, self._metadata.nodes().values()))
            self._answers[number] = DisconnectedError(f"{who}; known are {known}")
            self._metadata.refresh()
        else:
            self._unsent.setdefault(node_id, deque()).append(number)

    def _send(self, now_ms: int) -> int:
        """One question to each node that can take one now; for how many ms nothing can be done here but by an event."""
        waits = [self._patience_ms]
        for node_id in list(self._unsent):
            if node_id not in self._metadata.nodes():  # any more: metadata came meanwhile
                self._fail(node_id)
                continue
            may_try = self._client.poll_delay_ms(node_id, now_ms) == 0
            if self._client.ready(node_id, now_ms):
                self._send_one(node_id, now_ms)
                continue
            if may_try:
                self._attempted.add(node_id)
            if node_id in self._attempted and self._client.is_unavailable(node_id):
                self._fail(node_id)
            else:
                waits.append(self._client.poll_delay_ms(node_id, now_ms))
        return min(waits)

    def _send_one(self, node_id: int, now_ms: int) -> None:
        numbers = self._unsent[node_id]
        number = numbers.popleft()
        if not numbers:
            del self._unsent[node_id]
        question = self._questions[number]
        # At the deadline it is given up as every overdue request is: no answer of it can come into the next exchange.
        timeout_ms = max(1, min(self._patience_ms, self._left_ms()))
        self._client.send(node_id, question.api, question.body, now_ms, timeout_ms=timeout_ms, tag=(self, number))

    def _fail(self, node_id: int) -> None:
        why = self._client.why_not_ready(node_id) or f"broker {node_id} cannot be connected to"
        for number in self._unsent.pop(node_id):
            self._answers[number] = DisconnectedError(why)

    def _take(self, response: ClientResponse) -> None:
        asker, number = response.tag if isinstance(response.tag, tuple) else (None, -1)
        if asker is not self:
            return  # of an exchange that was over before
        answer: Message | None = response.body
        self._answers[number] = response.error or answer or DisconnectedError("no answer was to come")
        if self._on_answer is not None and response.error is None:
            self._on_answer()

    def _overdue(self, question: Question) -> DisconnectedError:
        node_id = question.node_id
        why = None if node_id is None else self._client.why_not_ready(node_id)
        who = "a broker" if node_id is None else f"broker {node_id}"
        return DisconnectedError(why or f"{who} did not answer {question.api.name} in time", timed_out=True)
