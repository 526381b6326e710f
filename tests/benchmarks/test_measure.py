"""CPU time of Spark's processes counts workers that have ended."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from benchmarks.measure import SparkCpu, family_cpu

BURNT_S = 0.2
# A parent whose first child has ended, and whose second one has not. Each takes BURNT_S of CPU.
FAMILY = f"""
import os, sys, time
def burn():
    while time.process_time() < {BURNT_S}:
        pass
if os.fork() == 0:
    burn()
    os._exit(0)
os.wait()
ready, said = os.pipe()
if os.fork() == 0:
    burn()
    os.write(said, b"x")
    sys.stdin.read()
    os._exit(0)
os.read(ready, 1)
print("ready", flush=True)
sys.stdin.read()
os.wait()
"""


@pytest.fixture
def family() -> Iterator[psutil.Process]:
    with subprocess.Popen([sys.executable, "-c", FAMILY], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield psutil.Process(process.pid)
        process.communicate(timeout=30)  # closes its input, which ends both


def test_the_time_of_a_family_is_that_of_the_living_and_the_dead(family: psutil.Process) -> None:
    own = family.cpu_times()
    (alive,) = family.children()

    assert alive.cpu_times().user + alive.cpu_times().system >= BURNT_S * 0.9
    assert family_cpu(family) - own.user - own.system >= 2 * BURNT_S * 0.9


def test_a_process_that_has_ended_has_taken_nothing(family: psutil.Process) -> None:
    (child,) = family.children()
    child.kill()
    psutil.wait_procs([child], timeout=0)
    family.kill()
    family.wait(30)

    assert family_cpu(family) == 0.0


def test_time_is_counted_from_an_earlier_reading() -> None:
    assert SparkCpu(5.0, 3.0, 1.0).since(SparkCpu(2.0, 1.5, 1.0)) == SparkCpu(3.0, 1.5, 0.0)
