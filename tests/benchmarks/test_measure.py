"""CPU time of Spark's processes, of which some end while they are measured."""

from __future__ import annotations

from benchmarks.measure import CpuTimes, Role, spent

BEFORE: CpuTimes = {
    (1, 0.0): (Role.JVM, 20.0),
    (2, 0.0): (Role.WORKER, 3.0),
    (3, 0.0): (Role.WORKER, 30.0),
    (4, 0.0): (Role.PLANNER, 1.0),
}


def test_each_role_has_taken_what_was_added_to_its_processes() -> None:
    last: CpuTimes = {**BEFORE, (1, 0.0): (Role.JVM, 22.0), (2, 0.0): (Role.WORKER, 3.5), (4, 0.0): (Role.PLANNER, 1.25)}
    assert [spent(BEFORE, last, role) for role in Role] == [2.0, 0.5, 0.25]


def test_a_new_process_counts_in_full_and_one_with_a_reused_id_is_new() -> None:
    last: CpuTimes = {(5, 7.0): (Role.WORKER, 0.5), (2, 8.0): (Role.WORKER, 0.25)}
    assert spent(BEFORE, last, Role.WORKER) == 0.75


def test_what_ended_before_the_first_reading_takes_nothing_away() -> None:
    assert spent(BEFORE, {(2, 0.0): (Role.WORKER, 4.0)}, Role.WORKER) == 1.0
