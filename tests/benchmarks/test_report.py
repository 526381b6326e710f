"""What a reader sees: medians with their spread, goals met or not, who failed; and what is kept."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.report import markdown, write
from benchmarks.results import CEILING, JVM, JVM_TUNED, SINK, Run

RESULTS = {
    "100B-json-none-8": {
        JVM: [Run(1_000_000, 1.0, 0.0), Run(1_000_000, 0.5, 0.0), Run(1_000_000, 0.8, 0.0)],
        JVM_TUNED: [],
        SINK: [Run(1_000_000, 1.0, 0.25)] * 3,
    },
    "memory-100B": {CEILING: [Run(10, 1.0, 0.0, 100 * 2**20)], SINK: [Run(10, 1.0, 0.0, 150 * 2**20)]},
}


def test_each_goal_is_told_met_or_not_met() -> None:
    lines = markdown(RESULTS).splitlines()
    assert "| ≥ 1.8 | 0.80 (0.50 - 1.00) | **not met** |" in next(line for line in lines if "against Spark's JVM sink" in line)
    assert "| ≤ 132 | 50.00 (50.00 - 50.00) | met |" in next(line for line in lines if "memory, 100 B" in line)


def test_a_goal_that_somebody_failed_to_measure_is_told() -> None:
    lines = markdown({**RESULTS, "100B-json-lz4-8": {JVM: [], SINK: RESULTS["100B-json-none-8"][SINK]}}).splitlines()
    told = next(line for line in lines if line.startswith("| 100 B, lz4, 8 partitions: rows/s against Spark's JVM sink"))
    assert told.endswith("| ≥ 1.4 | | **not measured** |")


def test_table_plot_and_raw_figures_are_kept(tmp_path: Path) -> None:
    kept = write(RESULTS, tmp_path / "bench")
    assert sorted(path.name for path in (tmp_path / "bench").iterdir()) == kept
    assert (tmp_path / "bench" / "report.md").read_text() == markdown(RESULTS)
    assert (tmp_path / "bench" / "throughput.png").read_bytes().startswith(b"\x89PNG")
    raw = json.loads((tmp_path / "bench" / "results.json").read_text())
    (run,) = raw["memory-100B"]["sink"]
    assert (run["rows"], run["seconds"], run["peak_rss"]) == (10, 1.0, 150 * 2**20)
