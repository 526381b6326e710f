"""All groups, and the effects of their events: responses are collected, timers set, records appended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TypeVar

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.broker_config import BrokerConfig
from spark_kafka_sink.broker.group.classic_group import Answer, ClassicGroup, Effects, InitialDelay, TimerKey, TimerRequest
from spark_kafka_sink.broker.group.group_log import GroupLog, client_code, group_of, metadata_of
from spark_kafka_sink.broker.group.membership import UNKNOWN_MEMBER_ID, Joiner, join, loaded, timed_out, unloaded
from spark_kafka_sink.broker.timer import Timer, TimerTask
from spark_kafka_sink.protocol.apis.groups import JoinGroupResponse
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.internal_topics import GroupMetadataValue

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


@dataclass(slots=True, eq=False)
class _Deadline:
    due_ms: float
    initial: InitialDelay | None
    task: TimerTask


class Deadlines:
    """The deadlines of all groups, guarded by the coordinator's lock.

    `due` is called on the timer's thread, without the lock, with a deadline's group, its key and itself. `taken` then decides
    under the lock whether it is still valid.
    """

    def __init__(self, timer: Timer, due: Callable[[str, TimerKey], None]) -> None:
        self._timer = timer
        self._due = due
        self._by_group: dict[str, dict[TimerKey, _Deadline]] = {}

    def set(self, group_id: str, key: TimerKey, request: TimerRequest | None) -> None:
        """Sets or replaces a deadline; None cancels it."""
        group = self._by_group.setdefault(group_id, {})
        known = group.get(key)
        if request is None:
            self._cancel(group_id, key)
            return
        due_ms = self._timer.now_ms() + request.delay_ms
        # Every heartbeat postpones a deadline of its member. The existing task checks again when it is due, so the timer does not
        # hold a cancelled task of 45 s for each heartbeat.
        if known is not None and known.task.due_ms <= due_ms:
            known.due_ms, known.initial = due_ms, request.initial
            return
        if known is not None:
            known.task.cancel()
        group[key] = _Deadline(due_ms, request.initial, self._armed(group_id, key, request.delay_ms))

    def taken(self, group_id: str, key: TimerKey) -> _Deadline | None:
        """Returns the deadline that is due now, once; None if it was moved or cancelled."""
        known = self._by_group.get(group_id, {}).get(key)
        if known is None:
            return None
        left_ms = known.due_ms - self._timer.now_ms()
        if left_ms > 0:
            if known.task.is_cancelled:
                known.task = self._armed(group_id, key, left_ms)
            return None
        self._cancel(group_id, key)
        return known

    def cancel_all(self, group_id: str) -> None:
        for key in list(self._by_group.get(group_id, {})):
            self._cancel(group_id, key)

    def _armed(self, group_id: str, key: TimerKey, delay_ms: float) -> TimerTask:
        return self._timer.after(delay_ms, lambda: self._due(group_id, key))

    def _cancel(self, group_id: str, key: TimerKey) -> None:
        group = self._by_group[group_id]
        known = group.pop(key, None)
        if known is not None:
            known.task.cancel()
        if not group:
            del self._by_group[group_id]


class GroupRunner:
    """Runs the events of groups under the coordinator's lock. Responses wait until the lock is free: see `take_answers`.

    `due` is called without the lock when a timer of a group expires; it then calls `time_out`.
    """

    def __init__(
        self, log: GroupLog, timer: Timer, config: BrokerConfig, wall_ms: Callable[[], int], due: Callable[[str, TimerKey], None]
    ) -> None:
        self._log = log
        self._config = config
        self._wall_ms = wall_ms
        self._deadlines = Deadlines(timer, due)
        self._groups: dict[str, ClassicGroup] = {}
        # Only groups that a restart would find, not those that exist only through their offsets.
        self._stored: dict[str, GroupMetadataValue] = {}
        self._answers: list[Answer] = []

    def every(self) -> Collection[ClassicGroup]:
        return list(self._groups.values())

    def find(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def known(self, group_id: str, code: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND) -> ClassicGroup:
        """Returns a group. Raises `code` if it is unknown."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiException(code, f"Group {group_id} not found.")
        return group

    def ensure(self, group_id: str) -> ClassicGroup:
        """Returns a group and creates it if needed. It is not stored until it has a member or an offset."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = self.new(group_id)
        return group

    def new(self, group_id: str) -> ClassicGroup:
        """Creates a group that is still unknown."""
        return ClassicGroup(group_id, self._wall_ms, self._config)

    def remove(self, group_id: str) -> None:
        """Removes a group whose tombstone is in the log."""
        self._groups.pop(group_id, None)
        self._stored.pop(group_id, None)
        self._deadlines.cancel_all(group_id)

    # Events

    def take_answers(self) -> list[Answer]:
        answers, self._answers = self._answers, []
        return answers

    def run(self, group: ClassicGroup, event: Callable[[ClassicGroup, Effects], ResultT]) -> ResultT:
        effects = Effects()
        try:
            result = event(group, effects)
            while effects.store is not None:
                store, effects.store = effects.store, None
                store.done(self._store(group.group_id, store.value))
            return result
        finally:
            self._answers += effects.answers
            for key, request in effects.timers.items():
                self._deadlines.set(group.group_id, key, request)

    def join(self, group_id: str, joiner: Joiner) -> None:
        """Joins a member. Only a client without a member id creates a group (`classicGroupJoinToClassicGroup`)."""
        group = self._groups.get(group_id)
        if group is None:
            group, code = self.new(group_id), ErrorCode.UNKNOWN_MEMBER_ID
            if joiner.member_id == UNKNOWN_MEMBER_ID:
                code = self._store(group_id, metadata_of(group))
            if code is not ErrorCode.NONE:
                refusal = JoinGroupResponse(error_code=code, member_id=joiner.member_id)
                self._answers.append(lambda: joiner.reply(refusal))
                return
            self._groups[group_id] = group
        self.run(group, lambda group, effects: join(group, joiner, effects))

    def time_out(self, group_id: str, key: TimerKey) -> None:
        group, over = self._groups.get(group_id), self._deadlines.taken(group_id, key)
        if group is not None and over is not None:
            self.run(group, lambda group, effects: timed_out(group, key, over.initial, effects))

    def _store(self, group_id: str, value: GroupMetadataValue) -> ErrorCode:
        try:
            self._log.store_group(group_id, value)
        except ApiException as error:
            logger.warning("Failed to store group %s generation %d: %s", group_id, value.generation, error)
            return client_code(error.code)
        except Exception:
            # Any error: members wait for what follows and must not wait forever.
            logger.exception("Failed to store group %s generation %d", group_id, value.generation)
            return ErrorCode.UNKNOWN_SERVER_ERROR
        self._stored[group_id] = value
        return ErrorCode.NONE

    # Loading

    def replay(self, group_id: str, value: GroupMetadataValue | None) -> None:
        if value is None:
            self.remove(group_id)
            return
        self._stored[group_id] = value
        self._groups[group_id] = group_of(group_id, value, self._wall_ms, self._config)

    def loaded(self) -> None:
        for group in self.every():
            self.run(group, loaded)

    def unload(self, group_id: str) -> None:
        """Removes a group. Waiting clients get an error and look for the coordinator."""
        self.run(self._groups[group_id], unloaded)
        self._deadlines.cancel_all(group_id)

    def reload(self, group_id: str) -> None:
        """Loads the group as another broker would find it in the log."""
        value = self._stored.get(group_id)
        group = self.new(group_id) if value is None else group_of(group_id, value, self._wall_ms, self._config)
        self._groups[group_id] = group
        self.run(group, loaded)
