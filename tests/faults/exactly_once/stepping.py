"""Lets the processes of a driver go from failpoint to failpoint, and holds the one that a test waits for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_sink.exactly_once.failpoints import Failpoint
from tests.faults.exactly_once.driver import LOCAL, Driver, Ended, Fleet, Said
from tests.faults.exactly_once.driver_program import Query
from tests.faults.exactly_once.failpoint_watch import Reached


def hold(driver: Driver, failpoint: Failpoint, batch: int, nth: int = 1) -> Reached:
    """Who comes to `failpoint` of the batch as the nth from now on. It stands there until it is let go; all others go on."""
    while True:
        event = driver.next()
        assert isinstance(event, Reached), driver.explain(f"{event}")
        if (event.name, event.batch) == (failpoint, batch) and event.pid != driver.pid:
            nth -= 1
            if not nth:
                return event
        _let_go(driver, event)


def _let_go(driver: Driver, reached: Reached) -> None:
    """The driver's own process ends what a stopped query has left, of this test or the one before. Here it fails to."""
    if reached.pid == driver.pid:
        reached.fail("the driver's own process is not to end what is left")
    else:
        reached.go()


def run_to_the_end(driver: Driver) -> Said:
    """How the query ended."""
    while True:
        event = driver.next()
        if isinstance(event, Reached):
            _let_go(driver, event)
        assert not isinstance(event, Ended), driver.explain("the driver is gone")
        if isinstance(event, Said):
            return event


def replaced_while_paused(old: Driver, new: Driver, query: Query, failpoint: Failpoint, batch: int) -> Said:
    """How the query of the old driver ended, which was paused at a failpoint of a batch until the new one had done all."""
    old.run(query)
    held = hold(old, failpoint, batch)
    old.pause()
    new.run(query)
    assert run_to_the_end(new).event == "done"
    old.resume()
    held.go()
    return run_to_the_end(old)


@contextmanager
def pair(fleet: Fleet) -> Iterator[tuple[Driver, Driver]]:
    """Two drivers, both ready, as they share two processors."""
    drivers = fleet.take(), fleet.take()
    try:
        yield drivers[0].ready(), drivers[1].ready()
    except BaseException:
        for driver in drivers:
            driver.stop()  # who knows what they are at
        raise
    for driver in drivers:
        fleet.give_back(driver)


@contextmanager
def running(fleet: Fleet, query: Query, master: str = LOCAL) -> Iterator[Driver]:
    """The driver of a query that nothing stops: at the end of the `with` it goes on until it is done."""
    driver = fleet.take(master)
    try:
        driver.run(query)
        yield driver
        ended = run_to_the_end(driver)
        assert ended.event == "done", driver.explain(f"the query failed: {ended.facts}")
    except BaseException:
        driver.stop()  # who knows what it is at
        raise
    fleet.give_back(driver)
