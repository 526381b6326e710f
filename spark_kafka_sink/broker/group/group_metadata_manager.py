"""All groups, and what is done when something happens in one: answers are kept, timers set, records appended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import TypeVar

from spark_kafka_sink.broker.api_exception import ApiException
from spark_kafka_sink.broker.group import joining
from spark_kafka_sink.broker.group.classic_group import ClassicGroup, GroupRules
from spark_kafka_sink.broker.group.deadlines import Deadlines
from spark_kafka_sink.broker.group.effects import Answer, Effects, TimerKey
from spark_kafka_sink.broker.group.group_log import GroupLog
from spark_kafka_sink.broker.group.group_metadata import group_of, new_group_metadata
from spark_kafka_sink.broker.group.joining import UNKNOWN_MEMBER_ID, Joiner
from spark_kafka_sink.broker.group.offset_rules import client_code
from spark_kafka_sink.broker.group.timeouts import loaded, timed_out, unloaded
from spark_kafka_sink.broker.timer import Timer
from spark_kafka_sink.protocol.error_codes import ErrorCode
from spark_kafka_sink.protocol.groups import JoinGroupResponse
from spark_kafka_sink.protocol.internal_topics import GroupMetadataValue

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class GroupMetadataManager:
    """Everything here is called under the coordinator's lock. Answers wait until that is free again: `take_answers`.

    `due` is called without the lock when a timer of a group has run out, for `time_out` to be called with it.
    """

    def __init__(
        self, log: GroupLog, timer: Timer, rules: GroupRules, wall_ms: Callable[[], int], due: Callable[[str, TimerKey], None]
    ) -> None:
        self._log = log
        self._rules = rules
        self._wall_ms = wall_ms
        self._deadlines = Deadlines(timer, due)
        self._groups: dict[str, ClassicGroup] = {}
        # What a restart would find; not of groups that are in no record but through their offsets.
        self._stored: dict[str, GroupMetadataValue] = {}
        self._answers: list[Answer] = []

    def every(self) -> Collection[ClassicGroup]:
        return list(self._groups.values())

    def find(self, group_id: str) -> ClassicGroup | None:
        return self._groups.get(group_id)

    def known(self, group_id: str, code: ErrorCode = ErrorCode.GROUP_ID_NOT_FOUND) -> ClassicGroup:
        """Raises `code`."""
        group = self._groups.get(group_id)
        if group is None:
            raise ApiException(code, f"Group {group_id} not found.")
        return group

    def ensure(self, group_id: str) -> ClassicGroup:
        """It is there from now on; no record says so before it has a member or an offset."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = self.new(group_id)
        return group

    def new(self, group_id: str) -> ClassicGroup:
        """One that nobody knows yet."""
        return ClassicGroup(group_id, self._wall_ms, self._rules)

    def remove(self, group_id: str) -> None:
        """Its tombstone is in the log."""
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
            while (store := effects.take_store()) is not None:
                store.done(self._store(group.group_id, store.value))
            return result
        finally:
            self._answers += effects.answers
            for key, wish in effects.timers.items():
                self._deadlines.set(group.group_id, key, wish)

    def join(self, group_id: str, joiner: Joiner) -> None:
        """Only who has no member id makes a group (`classicGroupJoinToClassicGroup`)."""
        group = self._groups.get(group_id)
        if group is not None:
            self.run(group, lambda group, effects: joining.join(group, joiner, effects))
        elif joiner.member_id == UNKNOWN_MEMBER_ID:
            self._join_new_group(group_id, joiner)
        else:
            self._refuse(joiner, joiner.member_id, ErrorCode.UNKNOWN_MEMBER_ID)

    def _join_new_group(self, group_id: str, joiner: Joiner) -> None:
        group = self.new(group_id)
        error = self._store(group_id, new_group_metadata(group))
        if error is not ErrorCode.NONE:
            self._refuse(joiner, UNKNOWN_MEMBER_ID, error)
            return
        self._groups[group_id] = group
        self.run(group, lambda group, effects: joining.join(group, joiner, effects))

    def _refuse(self, joiner: Joiner, member_id: str, code: ErrorCode) -> None:
        self._answers.append(lambda: joiner.reply(JoinGroupResponse(error_code=code, member_id=member_id)))

    def time_out(self, group_id: str, key: TimerKey) -> None:
        group, timeout = self._groups.get(group_id), self._deadlines.taken(group_id, key)
        if group is not None and timeout is not None:
            self.run(group, lambda group, effects: timed_out(group, timeout, effects))

    def _store(self, group_id: str, value: GroupMetadataValue) -> ErrorCode:
        try:
            self._log.store_group(group_id, value)
        except ApiException as error:
            logger.warning("Failed to store group %s generation %d: %s", group_id, value.generation, error)
            return client_code(error.code)
        except Exception:
            # Whatever it was: members wait for what follows from this, and must not wait for ever.
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
        self._groups[group_id] = group_of(group_id, value, self._wall_ms, self._rules)

    def loaded(self) -> None:
        for group in self.every():
            self.run(group, loaded)

    def unload(self, group_id: str) -> None:
        """Who waits is sent to look for the coordinator."""
        self.run(self._groups[group_id], unloaded)
        self._deadlines.cancel_all(group_id)

    def reload(self, group_id: str) -> None:
        """The group as another broker would find it in the log."""
        value = self._stored.get(group_id)
        group = self.new(group_id) if value is None else group_of(group_id, value, self._wall_ms, self._rules)
        self._groups[group_id] = group
        self.run(group, loaded)
