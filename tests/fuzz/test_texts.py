"""Pieces of texts that repeat cost processor time by their size only. `make fuzz` runs the same readers with coverage."""

from __future__ import annotations

import random
from functools import partial

import pytest

from tests.fuzz.targets import TEXTS, texts
from tests.limits import UNMEASURED, costs_at_most

SIZE = 100_000
SECONDS_PER_BYTE = 10e-6
WORDS = """// /* */ confluent. _meta rules option map_entry 0x http:// {} null 1e9 message string
{"type":"array","items": {"type":"record","name":"R","fields":[ {"name":"a","type":"int","default":1} {"a": "a":1"""
PIECES = (*"a0\"'\\/@:?=()[]{},; \n", *WORDS.split())


@pytest.mark.whole("two minutes of clocks; what once took long is counted in each reader's own tests")
@pytest.mark.slow
@pytest.mark.parametrize("reader", range(len(TEXTS)))
def test_repeated_pieces_take_linear_time(reader: int) -> None:
    chosen = random.Random(reader)
    for _ in range(60):
        before, piece, after = ("".join(chosen.choices(PIECES, k=chosen.randrange(4))) for _ in range(3))
        piece = piece or "a"
        data = bytes((reader,)) + f"{before}{piece * (SIZE // len(piece))}{after}".encode()
        costs_at_most(partial(texts, data), megabytes=UNMEASURED, seconds=SECONDS_PER_BYTE * len(data))
