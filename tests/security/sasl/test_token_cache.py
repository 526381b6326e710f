"""One token for a process and its settings: fetched without waiting, renewed before it expires, and shared."""

from __future__ import annotations

import gc
import itertools
import logging
import math
import os
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.errors import AuthenticationError, OptionError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.security.sasl import token_cache
from spark_kafka_sink.security.sasl.token_cache import JAVAS_REFRESH, Refresh, SharedTokens, Token, TokenCache
from tests.every import every
from tests.waiting import wait_until

NOW = 1_800_000_000.0
HOUR = 3600.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Source:
    """Makes tokens that live for an hour, unless it is told to fail."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.hosts: list[str] = []
        self.fails: BaseException | None = None
        self.lifetime_s = HOUR

    def __call__(self, host: str) -> Token:
        self.hosts.append(host)
        if self.fails is not None:
            raise self.fails
        return Token(Secret(f"token-{len(self.hosts)}"), self._clock.now + self.lifetime_s, "alice")


class User:
    """What asks for tokens. `woken` has an entry for each time it was woken."""

    def __init__(self) -> None:
        self.woken: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wakeup(self) -> None:
        self.woken.put(None)

    def get(self, cache: TokenCache, host: str = "broker") -> str | None:
        token = cache.get(host, self, self.wakeup)
        return None if token is None else token.value.reveal()

    def waits_for(self, cache: TokenCache, host: str = "broker") -> str:
        """Asks, waits until it is woken, and asks again."""
        assert self.get(cache, host) is None
        self.woken.get(timeout=30)
        token = self.get(cache, host)
        assert token is not None
        return token

    def is_told(self, cache: TokenCache) -> str:
        """Asks, waits until it is woken, and asks again. Returns what the error says."""
        assert self.get(cache) is None
        self.woken.get(timeout=30)
        with pytest.raises(AuthenticationError) as refused:
            self.get(cache)
        return refused.value.message


class Rig:
    """A cache whose clock the test sets. Its own thread looks at the clock when it is poked."""

    def __init__(self, *, is_per_host: bool = False, deadline_s: float = 30.0) -> None:
        self.clock = Clock()
        self.source = Source(self.clock)
        self.cache = TokenCache(self.source, is_per_host=is_per_host, deadline_s=deadline_s, clock=self.clock, chance=lambda: 0.0)
        self.user = User()

    def passes(self, seconds: float) -> float:
        """Lets time pass and does what is due. Returns after how many seconds something is due again."""
        self.clock.now += seconds
        return self.cache.step()


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Not of another file's test either, whose thread may end only now."""

    def end() -> None:
        if threads():
            gc.collect()  # a user that failed with an error is in a cycle with its traceback
        wait_until(lambda: not threads())

    end()
    yield
    end()


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.cache.leave(made.user)


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "kafka-sink-tokens"]


# The first token


def test_asking_does_not_wait_and_wakes_up_when_the_token_is_there(rig: Rig) -> None:
    released = threading.Event()
    cache = TokenCache(lambda host: Token(Secret(f"for-{host}")) if released.wait(30) else Token(Secret("")))
    assert rig.user.get(cache) is None
    assert rig.user.get(cache) is None
    released.set()
    rig.user.woken.get(timeout=30)

    assert rig.user.get(cache) == "for-broker"
    cache.leave(rig.user)


def test_all_users_and_hosts_share_one_token(rig: Rig) -> None:
    rig.user.waits_for(rig.cache)
    others = [User() for _ in range(5)]

    assert [other.get(rig.cache, f"broker-{number}") for number, other in enumerate(others)] == ["token-1"] * 5
    assert rig.source.hosts == ["broker"]


def test_a_source_that_makes_tokens_for_a_host_is_asked_for_each() -> None:
    rig = Rig(is_per_host=True)

    assert [rig.user.waits_for(rig.cache, host) for host in ("one", "two")] == ["token-1", "token-2"]
    assert [rig.user.get(rig.cache, host) for host in ("one", "two")] == ["token-1", "token-2"]
    assert rig.source.hosts == ["one", "two"]
    rig.cache.leave(rig.user)


def test_everybody_that_waited_is_woken_and_told_once_what_failed(rig: Rig) -> None:
    rig.source.fails = AuthenticationError("the endpoint says no")
    users = [User() for _ in range(3)]
    released = threading.Event()

    def source(host: str) -> Token:
        released.wait(30)
        return rig.source(host)

    cache = TokenCache(source, clock=rig.clock)
    for user in users:
        assert user.get(cache) is None
    released.set()
    for user in users:
        user.woken.get(timeout=30)
    rig.clock.now += 5  # late, and still told
    for user in users:
        with pytest.raises(AuthenticationError, match=r"the endpoint says no$"):
            user.get(cache)
    rig.source.fails = None

    assert users[0].waits_for(cache) == "token-2"
    for user in users:
        cache.leave(user)


def test_within_a_second_of_a_failure_nobody_asks_the_endpoint_again(rig: Rig) -> None:
    rig.source.fails = AuthenticationError("the endpoint says no")
    assert rig.user.get(rig.cache) is None
    rig.user.woken.get(timeout=30)
    for _ in range(3):
        with pytest.raises(AuthenticationError, match="the endpoint says no"):
            User().get(rig.cache)

    assert len(rig.source.hosts) == 1
    rig.source.fails = None
    rig.clock.now += 1.5
    with pytest.raises(AuthenticationError):  # it waited, and is told
        rig.user.get(rig.cache)
    assert rig.user.waits_for(rig.cache) == "token-2"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("no\nsuch vault"), "no token: ValueError: no such vault"),
        (OptionError("option x: there is no file"), "option x: there is no file"),
        (SystemExit(3), "no token: SystemExit: 3"),
    ],
)
def test_whatever_a_source_raises_is_an_authentication_error(rig: Rig, error: BaseException, words: str) -> None:
    rig.source.fails = error
    assert rig.user.is_told(rig.cache) == words


def test_a_token_that_has_expired_already_is_a_failure(rig: Rig) -> None:
    rig.source.lifetime_s = -60
    assert "the token expired at 2027-01-15T07:59:00+00:00: check the clocks" in rig.user.is_told(rig.cache)


def test_a_source_that_never_answers_is_an_error_after_its_deadline() -> None:
    ended, user = threading.Event(), User()

    def source(host: str) -> Token:
        ended.wait(30)
        raise AuthenticationError("too late")

    cache = TokenCache(source, deadline_s=0.05)
    assert "timed out waiting for a token: its source did not respond within 0.05 s" in user.is_told(cache)
    ended.set()
    cache.leave(user)


def test_a_wakeup_that_raises_keeps_nobody_else_from_being_woken(rig: Rig) -> None:
    def broken() -> None:
        raise OSError("closed")

    released, closed = threading.Event(), User()
    cache = TokenCache(lambda _: rig.source("broker") if released.wait(30) else Token(Secret("")), clock=rig.clock)
    cache.get("broker", closed, broken)
    assert rig.user.get(cache) is None
    released.set()
    rig.user.woken.get(timeout=30)

    assert rig.user.get(cache) == "token-1"
    cache.leave(rig.user)


# Renewal


def test_a_token_is_renewed_at_80_percent_of_its_life(rig: Rig) -> None:
    rig.user.waits_for(rig.cache)
    rig.passes(0.79 * HOUR)
    assert rig.user.get(rig.cache) == "token-1"
    rig.passes(0.02 * HOUR)

    assert rig.user.get(rig.cache) == "token-2"
    assert len(rig.source.hosts) == 2


def test_the_thread_itself_renews_what_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_cache, "SHORTEST_PAUSE_S", 0.0)
    user, made = User(), list[float]()

    def source(host: str) -> Token:
        made.append(time.time())
        return Token(Secret("for a minute"), time.time() + 60)

    cache = TokenCache(source, Refresh(window_factor=0.001, window_jitter=0, min_period_s=0, buffer_s=0))
    assert user.get(cache) is None
    wait_until(lambda: len(made) >= 3)
    cache.leave(user)

    assert min(later - before for before, later in itertools.pairwise(made)) >= 0.05


def test_a_failed_renewal_is_no_error_until_the_token_is_dead(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.user.waits_for(rig.cache)
    rig.source.fails = AuthenticationError("the endpoint is down")
    caplog.set_level(logging.INFO)
    caplog.clear()
    pauses = [rig.passes(0.81 * HOUR), *(rig.passes(10) for _ in range(5))]

    assert pauses == [10.0] * 6
    assert rig.user.get(rig.cache) == "token-1"
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in warnings] == [
        "The token of alice could not be renewed. It stays valid until 2027-01-15T09:00:00+00:00, and the renewal is retried:"
        " the endpoint is down"
    ]
    rig.passes(HOUR)
    assert "the endpoint is down" in rig.user.is_told(rig.cache)


def test_a_renewal_that_works_again_is_told_once(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.user.waits_for(rig.cache)
    rig.source.fails = AuthenticationError("the endpoint is down")
    rig.passes(0.81 * HOUR)
    rig.source.fails = None
    caplog.set_level(logging.INFO)
    caplog.clear()
    rig.passes(10)

    assert [record.getMessage() for record in caplog.records] == [
        "Got a token of alice that expires at 2027-01-15T09:48:46+00:00"
    ]
    caplog.clear()
    rig.passes(0.81 * HOUR)
    assert (rig.user.get(rig.cache), caplog.records) == ("token-4", [])


def test_reconnecting_logs_nothing_above_info(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.user.waits_for(rig.cache)
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    for _ in range(10):
        rig.passes(300)
        rig.user.get(rig.cache)

    assert [record for record in caplog.records if record.levelno > logging.INFO] == []


def test_a_dead_token_is_not_renewed_before_somebody_asks(rig: Rig) -> None:
    rig.user.waits_for(rig.cache)
    rig.clock.now += 2 * HOUR
    assert rig.cache.step() == 60.0

    assert len(rig.source.hosts) == 1
    assert rig.user.waits_for(rig.cache) == "token-2"


def test_a_token_that_the_broker_refused_is_not_used_again(rig: Rig) -> None:
    rig.user.waits_for(rig.cache)
    token = rig.cache.get("broker", rig.user, rig.user.wakeup)
    assert token is not None
    rig.cache.refused("broker", token)
    assert rig.user.waits_for(rig.cache) == "token-2"
    rig.cache.refused("broker", token)  # heard late, of the token before

    assert rig.user.get(rig.cache) == "token-2"


def test_no_log_and_no_repr_shows_a_token(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    rig.user.waits_for(rig.cache)
    rig.passes(0.81 * HOUR)
    token = rig.cache.get("broker", rig.user, rig.user.wakeup)

    assert "token-" not in caplog.text + repr(token) + str(token)


# The rule of Java's ExpiringCredentialRefreshingLogin


@every(
    "refresh, life_s, chance, after_s",
    [
        (JAVAS_REFRESH, 3600, 0.0, 2880),
        (JAVAS_REFRESH, 3600, 1.0, 3060),
        (JAVAS_REFRESH, 1000, 0.0, 700),  # 300 s before the end
        (JAVAS_REFRESH, 361, 0.0, 61),
        (JAVAS_REFRESH, 360, 0.0, 60),
        (JAVAS_REFRESH, 359, 0.0, 287.2),  # no room for the buffer and the least period
        (JAVAS_REFRESH, 10, 0.0, 8),
        (JAVAS_REFRESH, 1, 0.0, 1),  # not more than once a second
        (JAVAS_REFRESH, math.inf, 0.0, math.inf),
        (Refresh(window_factor=0.5, window_jitter=0, min_period_s=900, buffer_s=0), 1000, 0.5, 900),
        (Refresh(window_factor=1.0, window_jitter=0, min_period_s=0, buffer_s=0), 1000, 0.0, 1000),
    ],
)
def test_when_a_token_is_renewed(refresh: Refresh, life_s: float, chance: float, after_s: float) -> None:
    assert refresh.renew_at(NOW, NOW + life_s, chance) - NOW == pytest.approx(after_s, abs=0.001)


@given(st.floats(0.5, 1.0), st.floats(0, 0.25), st.integers(0, 900), st.integers(0, 3600), st.floats(2, 1e6), st.floats(0, 1))
def test_a_renewal_is_never_at_once(
    factor: float, jitter: float, min_period_s: float, buffer_s: float, life_s: float, chance: float
) -> None:
    renew_at = Refresh(factor, jitter, min_period_s, buffer_s).renew_at(NOW, NOW + life_s, chance)

    assert NOW + 1 <= renew_at <= NOW + life_s * 1.25


# Users and threads


def test_renewal_stops_when_the_last_user_leaves(rig: Rig) -> None:
    other = User()
    rig.user.waits_for(rig.cache)
    other.get(rig.cache)
    rig.cache.leave(rig.user)
    assert len(threads()) == 1
    rig.cache.leave(other)

    wait_until(lambda: not threads())
    assert rig.user.waits_for(rig.cache) == "token-2"


def test_renewal_stops_when_its_users_are_gone(rig: Rig) -> None:
    rig.user.waits_for(rig.cache)
    assert len(threads()) == 1
    rig.user = User()
    gc.collect()

    wait_until(lambda: not threads())


def test_nothing_starts_before_the_first_question() -> None:
    user = User()
    cache = TokenCache(Source(Clock()))
    assert threads() == []
    cache.leave(user)


@pytest.mark.parametrize("is_per_host", [False, True])
def test_users_that_come_and_go_in_many_threads_are_each_told(is_per_host: bool) -> None:
    seed = random.randrange(2**32)
    source_rng = random.Random(seed)

    def source(host: str) -> Token:
        if source_rng.random() < 0.3:
            raise AuthenticationError("not now")
        return Token(Secret(f"for-{host}"), time.time() + source_rng.choice((0.001, 0.01, 60)))

    cache = TokenCache(source, is_per_host=is_per_host)
    outcomes: queue.SimpleQueue[str] = queue.SimpleQueue()

    def use(number: int) -> None:
        rng = random.Random(seed + number)
        for _ in range(60):
            user, host = User(), f"host-{rng.randrange(3)}"
            token = None
            try:
                while (token := cache.get(host, user, user.wakeup)) is None:
                    user.woken.get(timeout=30)
                outcomes.put(token.value.reveal())
            except AuthenticationError as error:
                outcomes.put(error.message)
            except queue.Empty:
                outcomes.put("never woken")
            if rng.random() < 0.3 and token is not None:
                cache.refused(host, token)
            if rng.random() < 0.7:
                cache.leave(user)

    users = [threading.Thread(target=use, args=(number,)) for number in range(8)]
    for thread in users:
        thread.start()
    for thread in users:
        thread.join(60)
    told = Counter(outcomes.get_nowait() for _ in range(outcomes.qsize()))

    assert told.total() == 8 * 60
    # A token that lives for a millisecond may be dead when it arrives.
    texts = {text.partition(" at 2")[0] for text in told}
    assert texts <= {"not now", "the token expired", "for-host-0", "for-host-1", "for-host-2"}


def test_equal_settings_share_a_cache_for_as_long_as_somebody_uses_it() -> None:
    made = list[TokenCache]()

    def make() -> TokenCache:
        made.append(TokenCache(Source(Clock())))
        return made[-1]

    one, same, other = SharedTokens(("a", 1), make), SharedTokens(("a", 1), make), SharedTokens(("a", 2), make)
    assert one.cache is same.cache
    assert one.cache is not other.cache
    assert len(made) == 2
    del one, same, other
    made.clear()
    gc.collect()
    again = SharedTokens(("a", 1), make)
    assert len(made) == 1
    assert again.cache is made[0]


def test_a_forked_child_has_a_cache_and_a_thread_of_its_own() -> None:
    clock, user = Clock(), User()

    def make() -> TokenCache:
        return TokenCache(Source(clock), clock=clock)

    shared = SharedTokens("test_fork", make)
    user.waits_for(shared.cache)
    parents = shared.cache
    with parents._lock:  # a thread of the parent may hold it while the process forks
        child = os.fork()
        if child == 0:
            status = 1
            try:
                its_own = User()
                if shared.cache is not parents and its_own.waits_for(shared.cache) == "token-1" and len(threads()) == 1:
                    status = 0
            finally:
                os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert shared.cache is parents
    parents.leave(user)
