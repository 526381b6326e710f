"""The micro-batches that queries are fed."""

from __future__ import annotations

from pathlib import Path

from benchmarks.streaming import Input


def test_a_micro_batch_has_all_files_and_takes_no_room_of_its_own(tmp_path: Path) -> None:
    fed = Input(tmp_path)
    fed.rows.mkdir()
    for name in ("b", "a"):
        (fed.rows / f"{name}.parquet").write_text(name)
    for number in range(2):
        fed.add(number)
    added = sorted(fed.batches.glob("*/*"))
    assert [str(path.relative_to(fed.batches)) for path in added] == [
        "00000/000.parquet",
        "00000/001.parquet",
        "00001/000.parquet",
        "00001/001.parquet",
    ]
    assert [path.read_text() for path in added] == ["a", "b", "a", "b"]
    assert added[0].samefile(added[2])
