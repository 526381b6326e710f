"""What is kept of the cost benchmark, in a CSV file, and the figures that are made of it. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.figures import Spread
from benchmarks.results import JVM, Run, Runs


@dataclass(frozen=True, slots=True)
class CostSample:
    """One run of a contender.

    seconds: wall time. jvm_s and python_s: CPU seconds of Spark's JVM and of its Python workers. planners_s: CPU seconds of the
    driver's Python processes, which plan and commit a job.
    """

    cell: str
    contender: str
    rows: int
    seconds: float
    jvm_s: float
    python_s: float
    planners_s: float


def samples_of(cell: str, runs: Runs) -> list[CostSample]:
    """Returns the runs of a cell as samples, in the order of contenders and rounds."""
    return [_sample(cell, contender, run) for contender, them in runs.items() for run in them]


def _sample(cell: str, contender: str, run: Run) -> CostSample:
    times = (round(each, 4) for each in (run.seconds, run.jvm_s, run.cpu_s, run.planners_s))
    return CostSample(cell, contender, run.rows, *times)


@dataclass(frozen=True, slots=True)
class Cost:
    """Medians of a contender's runs in a cell. CPU times are microseconds per row of the executor.

    planners_s: CPU seconds of the driver's Python processes in a run. rounds: the CPU time of each run, in order.
    """

    runs: int
    rows: int
    rows_per_s: float
    jvm: float
    python: float
    cpu: float
    planners_s: float
    rounds: Sequence[float]


Costs = Mapping[str, Mapping[str, Cost]]  # cell -> contender -> cost


def costs(samples: Iterable[CostSample]) -> Costs:
    """Returns cell -> contender -> cost, in the order of the samples."""
    found: dict[str, dict[str, list[CostSample]]] = {}
    for sample in samples:
        found.setdefault(sample.cell, {}).setdefault(sample.contender, []).append(sample)
    return {cell: {name: _cost(runs) for name, runs in contenders.items()} for cell, contenders in found.items()}


def _cost(runs: Sequence[CostSample]) -> Cost:
    def middle(figure: Callable[[CostSample], float]) -> float:
        return median(figure(run) for run in runs)

    rounds = [(run.jvm_s + run.python_s) / run.rows * 1e6 for run in runs]
    return Cost(
        len(runs),
        runs[0].rows,
        middle(lambda run: run.rows / run.seconds),
        middle(lambda run: run.jvm_s / run.rows * 1e6),
        middle(lambda run: run.python_s / run.rows * 1e6),
        median(rounds),
        middle(lambda run: run.planners_s),
        rounds,
    )


def jvm_ratio(cell: Mapping[str, Cost], ours: str, theirs: str = JVM) -> float | None:
    """Returns the CPU time of a row in Spark's JVM sink, in times of that in this sink. None: one of both was not measured."""
    if ours not in cell or theirs not in cell:
        return None
    return cell[theirs].cpu / cell[ours].cpu


def added(cell: Mapping[str, Cost], contender: str, base: str) -> Spread | None:
    """Returns the CPU time of a row that a contender adds to what `base` takes. None: one of both was not measured.

    It is the difference of the medians, with the smallest and the largest difference within a round.
    """
    if contender not in cell or base not in cell:
        return None
    upper, lower = cell[contender], cell[base]
    rounds = [one - other for one, other in zip(upper.rounds, lower.rounds, strict=False)]
    return Spread(upper.cpu - lower.cpu, min(rounds), max(rounds))
