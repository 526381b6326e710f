"""Signals at the worst moments: Python runs their handlers in the main thread, as functions begin, after calls, in loops."""

from __future__ import annotations

import linecache
import sys
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any

# Steps between which Python looks for no signal, though it tells a tracer of the line: a lock is let go by one call into C.
NOT_BEFORE = ("with ", "try:", "buffer.draining.release()")


class Interrupt:
    """Inside its `with`, KeyboardInterrupt comes before the `line`th line that is run in some functions, and ends the `with`."""

    def __init__(self, line: int, *functions: Any) -> None:
        self.struck = False
        self.where = ""
        self._left = line
        self._codes = {code for function in functions for code in _codes(function)}
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        self._before = sys.gettrace()
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        sys.settrace(self._before)
        return kind is KeyboardInterrupt

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code not in self._codes:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not self.struck and not line.startswith(NOT_BEFORE):
            self._left -= 1
            if self._left == 0:
                self.struck = True
                self.where = f"{frame.f_code.co_qualname}: {line}"
                raise KeyboardInterrupt
        return self._trace


def _codes(of: Any) -> set[CodeType]:
    """A function's, or those of all functions of a class."""
    functions = [of] if isinstance(of, FunctionType) else [each for each in vars(of).values() if isinstance(each, FunctionType)]
    return {function.__code__ for function in functions}
