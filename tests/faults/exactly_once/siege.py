"""A query that is killed as a list of kills says, and run again from its checkpoint until it is done."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import cycle
from types import TracebackType
from typing import Self

from spark_kafka_sink.exactly_once.commit_log import partition_of
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from tests.faults.exactly_once.driver import LOCAL, Driver, Ended, Event, Fleet, Said
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.failpoint_watch import Reached
from tests.faults.exactly_once.kills import TASK_FAILPOINTS, Kill, Victim
from tests.faults.exactly_once.numbered_rows import NumberedRows
from tests.faults.exactly_once.open_transactions import assert_nothing_open, open_by_coordinator
from tests.kafka.brokers import Brokers
from tests.kafka.witness import read_topic

COMMITTED = "commit.end"
ERROR_TEXT = "this failpoint is to fail"
# What a query says whose commit was killed, or failed on purpose. With whatever else it must not stop. Spark says that the job
# failed if the abort that follows is killed, too.
KILLED = re.compile(f"Python worker (exited|failed)|Writing job failed|{ERROR_TEXT}")


class Siege:
    """One query, which is run by one driver after the other. The thread that made it calls its methods.

    fleet: gives the drivers, all with the Spark master `master`. variants: what the query is each time it is run,
    in turn: with another number of tasks. made: the kills so far, of whom was still alive. skipped: those that were not due for a
    while. failures: what the query failed of.
    """

    def __init__(self, brokers: Brokers, variants: Sequence[Query], fleet: Fleet, master: str = LOCAL) -> None:
        self.made: list[Kill] = []
        self.skipped: list[Kill] = []
        self.failures: list[str] = []
        self._brokers = brokers
        self._queries = cycle(variants)
        self._query = variants[0]
        self._fleet = fleet
        self._driver = fleet.take(master)
        self._kills: list[Kill] = []
        self._may_fail = False
        self._killed: set[int] = set()
        self._dead: list[Driver] = []
        self._standing: list[Reached] = []  # of dead drivers
        self._worker = 0
        self._patience: int | None = None
        self._waited = 0
        self._begin_batch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for driver in self._dead:
            driver.stop()
        if error is None:
            self._fleet.give_back(self._driver)
        else:
            self._driver.stop()  # who knows what it is at

    def run(self, kills: Iterable[Kill] = (), patience: int | None = None) -> None:
        """Until the query is done. AssertionError where a kill of the list was never due, or the query failed by itself.

        patience: for so many batches a kill is waited for, then it is skipped.
        """
        self._kills = list(kills)
        self._patience = patience
        self._driver.run(next(self._queries))
        while not self._is_done(self._driver.next()):
            pass
        self._brokers.heal()
        if patience is not None:
            self.skipped += self._kills
            return
        assert not self._kills, self._explain(f"never came to {', '.join(map(str, self._kills))}")

    def judge(self, rows: NumberedRows) -> None:
        for driver in self._dead:
            driver.wait_for_workers()  # what they still write is judged as well
        try:
            judge(self._brokers, rows, self._query)
        except AssertionError as error:
            raise AssertionError(self._explain(f"{error}")) from None

    def _is_done(self, event: Event) -> bool:
        match event:
            case Reached():
                self._at(event)
            case Said(event="failed", facts=facts):
                self._failed(str(facts["text"]))
            case Said(event="done"):
                return True
            case Ended(code=code):
                raise AssertionError(self._explain(f"the driver ended by itself, with code {code}"))
        return False

    def _at(self, reached: Reached) -> None:
        if reached.pid in self._killed:
            reached.leave()  # it came there before it was killed
            return
        self._reached[reached.name] += 1
        if reached.name in TASK_FAILPOINTS:
            self._worker = reached.pid
        self._let_go_beside(reached)
        if self._is_due(reached) and self._strike(self._kills[0], reached):
            self._kills.pop(0)
            return
        if reached.name == COMMITTED:
            self._begin_batch()
        reached.go()

    def _is_due(self, reached: Reached) -> bool:
        if not self._kills or not (self._calm or self._kills[0].again):
            return False
        kill = self._kills[0]
        return kill.failpoint == reached.name and kill.nth == self._reached[reached.name]

    def _begin_batch(self) -> None:
        """A batch is committed: who was killed is back before the next begins."""
        self._reached: Counter[str] = Counter()
        self._calm = True
        self._may_fail = False
        self._brokers.heal()
        self._waited += 1
        if self._kills and self._patience is not None and self._waited > self._patience:
            self.skipped.append(self._kills.pop(0))
            self._waited = 0
        if self._kills and self._kills[0].victim is Victim.DRIVER:
            self._fleet.prepare(self._driver.master)

    def _strike(self, kill: Kill, reached: Reached) -> bool:
        """False where the victim was gone before: the kill stays due."""
        if kill.late_ms:
            reached.go()
            time.sleep(kill.late_ms / 1000)  # not to wait for something: any moment after the failpoint will do
        if not self._kill(kill, reached):
            return False
        self.made.append(kill)
        self._waited = 0
        self._calm = False
        self._reached.clear()
        self._may_fail = self._may_fail or is_of_the_commit(kill)
        return True

    def _kill(self, kill: Kill, reached: Reached) -> bool:
        """Whether there was somebody to kill. Whoever lives goes on."""
        match kill.victim:
            case Victim.PYTHON:
                self._killed.add(reached.pid)
                return _sigkill(reached)
            case Victim.DRIVER:
                self._replace_driver(reached)
                return True
            case Victim.ERROR:
                return reached.fail(ERROR_TEXT)
            case Victim.EXECUTOR:
                executor = self._driver.executor_of(self._worker)
                assert executor != self._driver.jvm, "this driver has no executors of its own"
                executor.kill()
            case Victim.BROKER:
                self._brokers.heal()  # of three only one may be down
                self._brokers.kill(kill.broker or broker_that_matters(self._brokers, self._query, kill.failpoint))
            case Victim.BROKERS:
                for broker in self._brokers.broker_ids:
                    self._brokers.kill(broker)
                self._brokers.heal()
        reached.go()
        return True

    def _replace_driver(self, reached: Reached) -> None:
        """Who stands at the failpoint, and the Python processes beside it, outlive their driver."""
        self._driver.kill()
        self._dead.append(self._driver)
        self._standing.append(reached)
        self._may_fail = False  # that was another one's query
        self._driver = self._fleet.take(self._driver.master)
        self._driver.run(next(self._queries))

    def _let_go_beside(self, reached: Reached) -> None:
        """A dead driver's process goes on when its successor has come as far: from there they are at the batch together."""
        beside = [each for each in self._standing if reached.name in (each.name, COMMITTED)]
        for each in beside:
            self._standing.remove(each)
            each.go()

    def _failed(self, text: str) -> None:
        self.failures.append(text)
        assert self._may_fail, self._explain(f"the query failed by itself: {text}")
        assert KILLED.search(text), self._explain(f"the query failed of something else than it was killed by: {text}")
        self._may_fail = False
        self._driver.run(next(self._queries))

    def _explain(self, message: str) -> str:
        made = ", ".join(map(str, self.made)) or "none"
        return self._driver.explain(f"{message}\nkills until then: {made}")


def judge(brokers: Brokers, rows: NumberedRows, query: Query) -> None:
    """AssertionError unless every row is in the topic once, those of a key in order, and nothing of the query is open."""
    assert_nothing_open(brokers, query.id, query.topic)
    found = read_topic(brokers.direct_servers, query.topic, isolation_level="read_committed")
    if not query.bad_every:
        rows.check(found)
        return
    letters = read_topic(brokers.direct_servers, query.options["dead.letter.topic"], isolation_level="read_committed")
    assert {int(each.value or b"-1") for each in letters} == set(range(0, rows.total, query.bad_every))
    # A letter stands where its row would: letters have no order among the rows.
    good = {int(each.value or b"-1"): place for place, each in enumerate(found)}
    rows.check(sorted([*found, *letters], key=lambda each: int(each.value or b"-1")))
    rows_of_key = [[number for number in good if number % rows.keys == key] for key in range(rows.keys)]
    assert all(numbers == sorted(numbers) for numbers in rows_of_key)


def is_of_the_commit(kill: Kill) -> bool:
    """Whether it ends the query, or may where it comes late. Everybody else is replaced by Spark, or waited for by the sink."""
    return kill.victim in {Victim.PYTHON, Victim.ERROR} and kill.failpoint not in TASK_FAILPOINTS


def _sigkill(reached: Reached) -> bool:
    """False where Spark was faster, which kills the workers of tasks that it gives up."""
    try:
        os.kill(reached.pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    finally:
        reached.leave()
    return True


def broker_that_matters(brokers: Brokers, query: Query, failpoint: str) -> int:
    """Of a task's failpoints the leader of a partition that rows go to, of an EndTxn the coordinator of a transaction that waits
    for one, of all others the leader of the query's partition of the commit log."""
    if failpoint in TASK_FAILPOINTS:
        return brokers.leader(query.topic)
    waiting = open_by_coordinator(brokers, query.id) if failpoint.startswith("end.") else {}
    return next(iter(waiting), 0) or _leader_of_the_log(brokers, query)


def _leader_of_the_log(brokers: Brokers, query: Query) -> int:
    log = CommitLogSettings()
    topic = query.options.get("commit.log.topic", log.topic)
    partitions = int(query.options.get("commit.log.partitions", log.partitions))
    return brokers.leader(topic, partition_of(query.id, partitions))
