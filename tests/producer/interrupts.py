"""Interrupts at the worst moments: Python runs signal handlers in the main thread, as functions begin, after calls, in loops."""

from __future__ import annotations

import dis
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any

import spark_kafka_sink

PACKAGE = str(Path(spark_kafka_sink.__file__).parent)
# After these instructions the interpreter looks for signals. It does not at the beginning of a `with`, and not as it ends.
LOOKS_AFTER = {"RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}


class Interrupt:
    """Within its `with`, raises KeyboardInterrupt at the `step`th place where a signal may arrive in this package's code.

    The `with` swallows it; `struck` tells whether there were so many places.
    """

    def __init__(self, step: int) -> None:
        self.struck = False
        self.where = ""
        self._left = step
        self._last: dict[FrameType, int] = {}
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        self._before = sys.gettrace()
        # Python 3.12 traces opcodes only if some frame had this when settrace was called.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._trace)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        sys.settrace(self._before)
        self._last.clear()
        return kind is KeyboardInterrupt

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(PACKAGE) or self.struck:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            last = self._last.get(frame)
            self._last[frame] = frame.f_lasti
            if last is not None and dis.opname[code.co_code[last]] in LOOKS_AFTER:
                # What a signal's handler raises comes from the last instruction, and is caught where that one's errors are.
                self._left -= _handler(code, last) == _handler(code, frame.f_lasti)
            if self._left == 0:
                self.struck = True
                self.where = f"{code.co_qualname}, line {frame.f_lineno}"
                raise KeyboardInterrupt
        elif event == "return":
            self._last.pop(frame, None)
        return self._trace


@cache
def _handler(code: CodeType, offset: int) -> int | None:
    """Returns where an error of the instruction is caught; None: in the caller."""
    entries = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    return next((entry.target for entry in entries if entry.start <= offset < entry.end), None)
