"""`python -m benchmarks.instructions.counting`: counts in a separate process, and prints JSON.

`bytecode` counts the interpreter's instructions. `native` marks the counted calls for valgrind, which must run the process.
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import platform
import sys
import sysconfig
from collections import Counter as Tally
from collections.abc import Callable, Mapping
from importlib.metadata import version
from types import CodeType, FrameType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.instructions.paths import measure_all

HARNESS: Final = "benchmarks."


class BytecodeCounter:
    """Counts bytecode instructions by function, of all Python code that a call runs in this thread.

    paths: instructions by path and function.
    """

    def __init__(self) -> None:
        self.paths: dict[str, Mapping[str, int]] = {}
        self._counts: Tally[CodeType] = Tally()
        self._names: dict[CodeType, str] = {}

    def measure(self, path: str, call: Callable[[], object]) -> None:
        self._counts.clear()
        gc.disable()
        sys.settrace(self._called)
        try:
            call()
        finally:
            sys.settrace(None)
            gc.enable()
        functions: Tally[str] = Tally()
        for code, count in self._counts.items():
            functions[self._names[code]] += count
        self.paths[path] = dict(functions)

    def _called(self, frame: FrameType, event: str, argument: object) -> Callable[[FrameType, str, Any], Any] | None:
        module = frame.f_globals.get("__name__", "?")
        if module.startswith(HARNESS):
            return None
        self._names[frame.f_code] = f"{module}:{frame.f_code.co_qualname}"
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._executed

    def _executed(self, frame: FrameType, event: str, argument: object) -> Callable[[FrameType, str, Any], Any]:
        if event == "opcode":
            self._counts[frame.f_code] += 1
        return self._executed


MACHINE: Final = "x86_64"
"""The architecture of valgrind's requests below."""

# Valgrind's client requests (valgrind.h, callgrind.h). A request is a sequence of instructions that does nothing on a processor.
# Its arguments are six words: the request's number, then its own arguments.
_REQUEST_BASE: Final = ord("C") << 24 | ord("T") << 16
_DUMP_STATS_AT: Final = _REQUEST_BASE + 3
_START_INSTRUMENTATION: Final = _REQUEST_BASE + 4
_STOP_INSTRUMENTATION: Final = _REQUEST_BASE + 5
_X86_64: Final = bytes.fromhex(
    "4889f8"  # mov rax, rdi: the address of the arguments
    "31d2"  # xor edx, edx: the result without valgrind
    "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi, 3; 13; 61; 51
    "4887db"  # xchg rbx, rbx
    "4889d0 c3"  # mov rax, rdx; ret
)


class CallgrindRegions:
    """Has callgrind count only the measured calls, and write one file for each."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        self._memory.write(_X86_64)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._request = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(address)

    def measure(self, path: str, call: Callable[[], object]) -> None:
        name = ctypes.create_string_buffer(path.encode())
        start, stop = _arguments(_START_INSTRUMENTATION), _arguments(_STOP_INSTRUMENTATION)
        gc.collect()
        gc.disable()
        self._request(start)
        call()
        self._request(stop)
        gc.enable()
        self._request(_arguments(_DUMP_STATS_AT, ctypes.addressof(name)))


def _arguments(request: int, first: int = 0) -> ctypes.Array[ctypes.c_size_t]:
    return (ctypes.c_size_t * 6)(request, first)


def facts() -> dict[str, str]:
    """Returns what determines the counts, as this process sees it. Valgrind has its own processor, with AVX2 at most."""
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "build": f"{platform.python_version()} {platform.python_compiler()} {_build_options()}".rstrip(),
        "libc": " ".join(platform.libc_ver()),
        "machine": platform.machine(),
        "simd": f"{' '.join([*extensions['baseline'], *extensions['found']])}, {pa.runtime_info().simd_level}",
        **{library: version(library) for library in ("numpy", "pyarrow", "crc32c")},
    }


def _build_options() -> str:
    """Returns the options with which the interpreter was built, of those that change its native code."""
    given = sysconfig.get_config_var("CONFIG_ARGS") or ""
    return " ".join(option for option in ("--enable-shared", "--enable-optimizations", "--with-lto") if option in given)


def main(kind: str, servers: str) -> None:
    if kind == "native":
        measure_all(servers, CallgrindRegions().measure)
        found: Mapping[str, Mapping[str, int]] = {}
    else:
        counter = BytecodeCounter()
        measure_all(servers, counter.measure)
        found = counter.paths
    print(json.dumps({"facts": facts(), "paths": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
