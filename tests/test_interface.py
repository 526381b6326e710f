"""What other programs depend on changes only on purpose: docs/interface.txt has it, and `make api WRITE=1` renews that."""

from __future__ import annotations

from docs import interface


def test_the_interface_is_the_one_that_was_promised() -> None:
    assert interface.differences() == []


def test_each_promise_is_made_once() -> None:
    found = interface.lines()
    assert sorted(found) == sorted(set(found))
