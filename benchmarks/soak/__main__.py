"""`make soak`: an at-least-once and an exactly-once stream side by side, on three real brokers that are killed in turn.

A slow consumer reads both topics. The run fails if a row is lost, doubled or out of order, if a query ends, or if drivers or
workers need more and more memory, threads or file descriptors. Samples and picture are saved in build/soak/.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from benchmarks.environment import BROKER_SETTINGS, CHECKOUT
from benchmarks.pictures import machine
from benchmarks.soak import samples
from benchmarks.soak.judge import SlowConsumer
from benchmarks.soak.picture import Point, draw
from benchmarks.soak.samples import Sample, Sampler
from benchmarks.soak.stream import Stream
from docs.markdown import table
from tests.kafka.cluster import KafkaCluster

OUTPUT = CHECKOUT / "build" / "soak"
PICTURE = CHECKOUT / "docs" / "pictures" / "soak.svg"
GUARANTEES = ("at-least-once", "exactly-once")
PARTITIONS = 6
RESTART_EVERY_S = 60.0
# The judge reads a little more slowly than the streams write, so it is some minutes behind at the end.
JUDGE_SHARE = 0.8
START_S, END_S, CATCH_UP_S = 180.0, 180.0, 600.0
LOOK_EVERY_S = 2.0
FEWEST_MINUTES = 4


class Program:
    """The driver program of a stream, from its start to the end of a `with`."""

    def __init__(self, stream: Stream, folder: Path) -> None:
        self.stream = stream
        self.rows = 0  # in committed micro-batches; known after `finish`
        self._said = folder / f"{stream.name}.log"
        with self._said.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.soak.stream", stream.as_json()],
                cwd=CHECKOUT,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
            )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def problem(self) -> str | None:
        """Returns why the program has ended; None while it runs."""
        code = self.process.poll()
        tail = self._said.read_text(errors="replace")[-3000:]
        return None if code is None else f"{self.stream.name}: the driver ended with exit code {code}:\n{tail}"

    def finish(self) -> str | None:
        """Stops the query at any moment. Returns what went wrong, if anything."""
        try:
            out, _ = self.process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            return f"{self.stream.name}: the driver did not end within {END_S:g} s"
        if self.process.returncode:
            return self.problem()
        self.rows = int(out.split()[-1])
        return None


@dataclass(slots=True)
class History:
    """What happened during a run. Times are seconds since its start. restarts: when a broker was killed. lags: by stream."""

    restarts: list[float] = field(default_factory=list)
    lags: dict[str, list[Point]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the soak test. The exit code is 1 if anything went wrong."""
    asked = _parser().parse_args(arguments)
    if asked.minutes < FEWEST_MINUTES:
        print(f"MINUTES must be at least {FEWEST_MINUTES}: the second minute is compared with later ones", file=sys.stderr)
        return 2
    OUTPUT.mkdir(parents=True, exist_ok=True)
    history = History()
    with tempfile.TemporaryDirectory() as name, KafkaCluster(3, BROKER_SETTINGS) as cluster, ExitStack() as stack:
        streams = [_stream(guarantee, cluster, Path(name), asked.rows) for guarantee in GUARANTEES]
        programs = [stack.enter_context(Program(stream, Path(name))) for stream in streams]
        judges = {each.name: SlowConsumer(cluster.direct_servers, each.topic, int(each.rows * JUDGE_SHARE)) for each in streams}
        for judge in judges.values():
            stack.callback(judge.stop)
            judge.start()
        _wait_for_rows(programs, judges)
        with Sampler({program.stream.name: program.process.pid for program in programs}) as sampler:
            _restart_brokers(cluster, programs, judges, asked.minutes * 60, history)
        history.problems += [problem for program in programs if (problem := program.finish())]
        cluster.heal()
        for program in programs:
            history.problems += _judged(judges[program.stream.name], program)
        history.problems += samples.problems(sampler.samples)
    _keep(sampler.samples, history, in_docs=asked.keep)
    print(_report(programs, judges, sampler.samples, history))
    return 1 if history.problems else 0


def _stream(guarantee: str, cluster: KafkaCluster, folder: Path, rows: int) -> Stream:
    topic = cluster.create_topic(f"soak-{guarantee}", PARTITIONS)
    return Stream(guarantee, guarantee, topic, cluster.bootstrap_servers, str(folder / f"checkpoint-{guarantee}"), rows)


def _wait_for_rows(programs: Sequence[Program], judges: Mapping[str, SlowConsumer]) -> None:
    """Returns when rows of each stream can be read. Raises RuntimeError if they never can."""
    deadline = time.monotonic() + START_S
    while not all(judge.seen.records for judge in judges.values()):
        for program in programs:
            if problem := program.problem():
                raise RuntimeError(problem)
        if time.monotonic() > deadline:
            raise RuntimeError(f"a stream has written no rows within {START_S:g} s")
        time.sleep(0.2)


def _restart_brokers(
    cluster: KafkaCluster, programs: Sequence[Program], judges: Mapping[str, SlowConsumer], seconds: float, history: History
) -> None:
    """Kills one broker after the other, one each minute, and starts it again. Ends early if a program or a judge has failed."""
    begun = time.monotonic()
    nodes = cycle(cluster.broker_ids)
    while (now := time.monotonic() - begun) < seconds:
        for name, judge in judges.items():
            history.lags.setdefault(name, []).append((now, judge.lag))
        history.problems += [problem for program in programs if (problem := program.problem())]
        history.problems += [f"{name}: the judge failed: {judge.error}" for name, judge in judges.items() if judge.error]
        if history.problems:
            return
        if now >= RESTART_EVERY_S * (len(history.restarts) + 1):
            history.restarts.append(now)
            cluster.restart(next(nodes))
        time.sleep(LOOK_EVERY_S)


def _judged(judge: SlowConsumer, program: Program) -> list[str]:
    judge.catch_up(program.rows, CATCH_UP_S)
    judge.stop()
    name = program.stream.name
    if judge.error is not None:
        return [f"{name}: the judge failed: {judge.error}"]
    return [f"{name}: {problem}" for problem in judge.seen.problems(program.rows, program.stream.rows)]


def _keep(found: Sequence[Sample], history: History, *, in_docs: bool) -> None:
    samples.keep(OUTPUT / "samples.csv", found)
    draw(OUTPUT / "soak.svg", machine(("pyspark", "pyarrow", "numpy")), found, history.lags, history.restarts)
    if in_docs:
        shutil.copy(OUTPUT / "soak.svg", PICTURE)


def _report(programs: Sequence[Program], judges: Mapping[str, SlowConsumer], found: Sequence[Sample], history: History) -> str:
    lines = []
    for program in programs:
        name = program.stream.name
        for role in dict.fromkeys(one.role for one in found if one.stream == name):
            own = [one for one in found if (one.stream, one.role) == (name, role)]
            early = [one for one in own if samples.WARM_UP_S <= one.seconds < samples.COMPARED_S] or own[:1]
            late = [one for one in own if one.seconds >= samples.COMPARED_S] or own[-1:]
            figures = (
                f"{max(getattr(one, figure) for one in early):,.0f} to {max(getattr(one, figure) for one in late):,.0f}"
                for figure in ("rss_mib", "threads", "files")
            )
            lines.append([name, role, *figures])
    rows = ", ".join(
        f"{program.stream.name} {program.rows:,} rows committed, {judges[program.stream.name].seen.records:,} read"
        for program in programs
    )
    said = [
        table(["stream", "processes", "memory, MiB", "threads", "files"], lines),
        f"Each figure: the peak of the second minute, and of the minutes after it. {len(history.restarts)} brokers were killed.",
        rows,
        *(f"PROBLEM: {problem}" for problem in history.problems),
        f"{'FAILED' if history.problems else 'No row lost, doubled or out of order; nothing grew'}. Kept in {OUTPUT}",
    ]
    return "\n\n".join(said)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m benchmarks.soak", description="Two streams for minutes, while brokers restart.")
    minutes = float(os.environ.get("MINUTES") or 20)
    parser.add_argument("--minutes", type=float, default=minutes, help="how long (%(default)g); MINUTES= sets it, too")
    parser.add_argument("--rows", type=int, default=2_000, help="rows of each stream per second (%(default)s)")
    parser.add_argument("--keep", action="store_true", help="put the picture into docs/pictures")
    return parser


if __name__ == "__main__":
    sys.exit(main())
