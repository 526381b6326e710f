"""A process-wide token per settings, shared by producers and renewed in the background before it expires."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import queue
import random
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, TypeAlias

from spark_kafka_sink.errors import AuthenticationError, KafkaSinkError
from spark_kafka_sink.options.secret import Secret
from spark_kafka_sink.peer_text import quoted

logger = logging.getLogger(__name__)

RENEW_AGAIN_S: Final = 10.0
"""Pause after a failed renewal (ExpiringCredentialRefreshingLogin.DELAY_SECONDS_BEFORE_NEXT_RETRY_WHEN_RELOGIN_FAILS)."""
FAILURE_LASTS_S: Final = 1.0
"""How long a failure is returned to all callers, so that many producers do not overload an endpoint."""
UNTOLD_LASTS_S: Final = 60.0
"""How long a failure is kept for earlier callers, which may be busy."""
SHORTEST_PAUSE_S: Final = 1.0
"""Minimum time between renewals of a token that is about to expire."""
LONGEST_PAUSE_S: Final = 60.0
"""Maximum time between two looks at the clock: a clock may be changed, and a machine may have slept."""


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token.

    Attributes:
        value: The token as sent.
        expires_at: Expiry in seconds since the epoch; math.inf if unknown.
        principal: Owner of the token, for error messages and logs; empty if unknown.
        extensions: SASL extensions that belong to the token.
    """

    value: Secret
    expires_at: float = math.inf
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        # References in a token are not resolved: their values would be sent to the broker.
        object.__setattr__(self, "value", Secret(self.value.unresolved(), None))


TokenSource: TypeAlias = Callable[[str], Token]
"""Returns a new token for a broker's host, or raises. It may be slow, so it is called in a separate thread."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """When to renew a token: Java's options sasl.login.refresh.*, with their defaults."""

    window_factor: float = 0.80
    window_jitter: float = 0.05
    min_period_s: float = 60.0
    buffer_s: float = 300.0

    def renew_at(self, now: float, expires_at: float, chance: float) -> float:
        """Returns when to renew a token that was fetched now: Java's ExpiringCredentialRefreshingLogin.refreshMs.

        Args:
            now: Current time in seconds since the epoch, like all times here.
            expires_at: When the token expires.
            chance: A random number from 0 to 1, which spreads the renewals of many machines.
        """
        if math.isinf(expires_at):
            return math.inf
        proposed = now + (expires_at - now) * (self.window_factor + self.window_jitter * chance)
        if now + self.min_period_s + self.buffer_s <= expires_at:
            # Neither in the last minutes of its life, nor again at once.
            proposed = max(min(proposed, expires_at - self.buffer_s), now + self.min_period_s)
        return max(proposed, now + SHORTEST_PAUSE_S)


JAVAS_REFRESH: Final = Refresh()


class _Entry:
    """The token for one host, or for all. `waiting`: callers that found no token, and how to wake them."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.token: Token | None = None
        self.renew_at = math.inf
        self.is_wanted = False
        self.waiting: dict[object, Callable[[], None]] = {}
        self.failure: str | None = None
        self.failed_at = -math.inf
        self.untold: weakref.WeakSet[object] = weakref.WeakSet()
        self.told_renewal_fails = False

    def is_alive(self, now: float) -> bool:
        return self.token is not None and now < self.token.expires_at

    def due_at(self, now: float) -> float:
        """Returns when to fetch a token. An expired one is not renewed before it is requested."""
        if self.is_wanted:
            return now
        return self.renew_at if self.is_alive(now) else math.inf


class TokenCache:
    """The tokens of one source.

    Threads: any thread may `get`. A daemon thread fetches; it starts with the first `get` and ends once the last user has gone.
    `_lock` guards everything but the inbox, and is held for no longer than a look-up. `_stepping` lets one thread fetch at a
    time. A user is whatever asks, mostly a mechanism. It is known by a weak reference, and its end reaches the thread through
    the inbox, because a reference may die in any thread, also in one that holds the lock.
    """

    def __init__(
        self,
        source: TokenSource,
        refresh: Refresh = JAVAS_REFRESH,
        *,
        is_per_host: bool = False,
        deadline_s: float = 35.0,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """is_per_host: whether a token is valid for one host only. deadline_s: time limit of one call of `source`, in s."""
        self._source = source
        self._refresh = refresh
        self._is_per_host = is_per_host
        self._deadline_s = deadline_s
        self._clock = clock
        self._chance = chance
        self._lock = threading.Lock()
        self._stepping = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._users: weakref.WeakSet[object] = weakref.WeakSet()
        self._inbox: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def get(self, host: str, user: object, wakeup: Callable[[], None]) -> Token | None:
        """Returns the token for a host, or None while it is being fetched; then `wakeup` is called when it is ready. Never waits.

        Raises AuthenticationError, with the reason, if no token is available.
        """
        with self._lock:
            if user not in self._users:
                self._users.add(user)
                weakref.finalize(user, self._inbox.put, None).atexit = False
            key = host if self._is_per_host else ""
            entry, now = self._entries.setdefault(key, _Entry(host)), self._clock()
            if entry.is_alive(now):
                return entry.token
            lasts_s = UNTOLD_LASTS_S if user in entry.untold else FAILURE_LASTS_S
            if entry.failure is not None and 0 <= now - entry.failed_at < lasts_s:
                entry.untold.discard(user)
                raise AuthenticationError(entry.failure)
            entry.is_wanted = True
            entry.waiting[user] = wakeup
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="kafka-sink-tokens", daemon=True)
                thread.start()
                self._thread = thread
        self._inbox.put(None)
        return None

    def refused(self, host: str, token: Token) -> None:
        """Forgets a token that a broker rejected: the next login fetches another."""
        with self._lock:
            entry = self._entries.get(host if self._is_per_host else "")
            if entry is not None and entry.token is token:
                entry.token = None

    def leave(self, user: object) -> None:
        """Removes a user. Renewal ends with the last user."""
        with self._lock:
            self._users.discard(user)
            for entry in self._entries.values():
                entry.waiting.pop(user, None)
        self._inbox.put(None)

    def step(self) -> float:
        """Fetches due tokens in this thread. Returns the number of seconds until the next check."""
        with self._stepping:
            with self._lock:
                now = self._clock()
                due = [entry for entry in self._entries.values() if entry.due_at(now) <= now]
            for entry in due:
                self._fetch(entry)
            with self._lock:
                now = self._clock()
                times = [entry.due_at(now) for entry in self._entries.values()]
        return max(0.0, min([*times, now + LONGEST_PAUSE_S]) - now)

    def _run(self) -> None:
        while True:
            pause_s = self.step()
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=pause_s)
            with self._lock:
                if not self._users:
                    self._entries.clear()
                    self._thread = None
                    return

    def _fetch(self, entry: _Entry) -> None:
        try:
            token = within(self._deadline_s, lambda: self._source(entry.host))
            if token.expires_at <= self._clock():
                raise AuthenticationError(f"the token expired at {_date(token.expires_at)}: check the clocks of both machines")
        except KafkaSinkError as error:
            woken = self._failed(entry, error.message)
        except BaseException as error:  # a user's token provider may raise anything, even SystemExit
            woken = self._failed(entry, f"no token: {type(error).__name__}: {quoted(str(error))}")
        else:
            woken = self._fetched(entry, token)
        for wakeup in woken:
            try:
                wakeup()
            except Exception:
                logger.debug("A producer that waited for a token has been closed", exc_info=True)

    def _fetched(self, entry: _Entry, token: Token) -> list[Callable[[], None]]:
        with self._lock:
            now = self._clock()
            is_first, recovered = entry.token is None, entry.told_renewal_fails
            entry.token = token
            entry.renew_at = self._refresh.renew_at(now, token.expires_at, self._chance())
            entry.failure, entry.told_renewal_fails, entry.is_wanted = None, False, False
            woken, entry.waiting = list(entry.waiting.values()), {}
        level = logging.INFO if is_first or recovered else logging.DEBUG
        logger.log(level, "Got a token%s that expires at %s", _of(token), _date(token.expires_at))
        return woken

    def _failed(self, entry: _Entry, reason: str) -> list[Callable[[], None]]:
        with self._lock:
            now, token = self._clock(), entry.token
            entry.is_wanted = False
            woken = list(entry.waiting.values())
            if token is not None and now < token.expires_at:
                # Not an error yet: the token is valid, and there is time to retry.
                is_news, entry.told_renewal_fails = not entry.told_renewal_fails, True
                entry.renew_at = now + max(SHORTEST_PAUSE_S, min(RENEW_AGAIN_S, (token.expires_at - now) / 2))
            else:
                token, is_news = None, False
                entry.failure, entry.failed_at = reason, now
                entry.untold = weakref.WeakSet(entry.waiting)
            entry.waiting = {}
        if token is not None:
            level = logging.WARNING if is_news else logging.DEBUG
            text = "The token%s could not be renewed. It stays valid until %s, and the renewal is retried: %s"
            logger.log(level, text, _of(token), _date(token.expires_at), reason)
        return woken


def within(deadline_s: float, call: Callable[[], Token]) -> Token:
    """Runs `call` in a separate thread and returns its result. Raises its error, or AuthenticationError after `deadline_s`.

    A call that never returns blocks only its own daemon thread.
    """
    outcome: queue.SimpleQueue[Token | BaseException] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcome.put(call())
        except BaseException as error:
            outcome.put(error)

    threading.Thread(target=run, name="kafka-sink-token-source", daemon=True).start()
    try:
        result = outcome.get(timeout=deadline_s)
    except queue.Empty:
        raise AuthenticationError(f"timed out waiting for a token: its source did not respond within {deadline_s:g} s") from None
    if isinstance(result, BaseException):
        raise result
    return result


class _Shared:
    """The caches of this process. A forked child starts without any: the parent's threads are missing, and locks may be held."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._caches: weakref.WeakValueDictionary[Hashable, TokenCache] = weakref.WeakValueDictionary()

    def cache(self, settings: Hashable, make: Callable[[], TokenCache]) -> TokenCache:
        with self._lock:
            found = self._caches.get(settings)
            if found is None:
                found = self._caches[settings] = make()
            return found


_shared = _Shared()
os.register_at_fork(after_in_child=_shared.reset)


class SharedTokens:
    """The process's cache for some settings, as used by one user. After a fork it is the cache of the new process."""

    def __init__(self, settings: Hashable, make: Callable[[], TokenCache]) -> None:
        self._settings = settings
        self._make = make
        self._attach()

    def _attach(self) -> None:
        self._pid = _shared.pid
        self._attached = _shared.cache(self._settings, self._make)

    @property
    def cache(self) -> TokenCache:
        if self._pid != _shared.pid:
            self._attach()
        return self._attached


def _date(epoch_s: float) -> str:
    if math.isinf(epoch_s):
        return "an unknown time"
    try:
        return datetime.fromtimestamp(epoch_s, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):  # a year over 9999
        return f"{epoch_s:.0f} s after 1970"


def _of(token: Token) -> str:
    return f" of {quoted(token.principal)}" if token.principal else ""
