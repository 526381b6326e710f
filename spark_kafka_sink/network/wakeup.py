"""Lets one thread end another thread's wait for sockets."""

from __future__ import annotations

import socket


class Wakeup:
    """A pair of sockets, one of which the waiting thread listens to.

    `wakeup()` may be called from any thread, also after `close()`; everything else belongs to the waiting thread.
    """

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._signalled = False

    def fileno(self) -> int:
        return self._receiver.fileno()

    def wakeup(self) -> None:
        """One system call at most until the wait has ended, however many threads call."""
        if self._signalled:
            return
        self._signalled = True
        try:
            self._sender.send(b"\0")
        except BlockingIOError:
            pass  # full of signals that nobody has seen yet: the wait ends by those
        except OSError:
            if self._receiver.fileno() >= 0:  # close() ends the receiver first
                self._signalled = False
                raise
            # Closed: nobody waits any more.

    def drain(self) -> None:
        """Forget the signals so far. The caller looks at what it was woken for afterwards, never before."""
        try:
            while len(self._receiver.recv(4096)) == 4096:
                pass
        except BlockingIOError:
            pass  # empty: all of them were read, or there was none
        # Only now: cleared before recv, a signal given in between would leave the flag set and the pair empty for good.
        self._signalled = False

    def close(self) -> None:
        self._receiver.close()
        self._sender.close()
