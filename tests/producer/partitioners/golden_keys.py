"""12,000 keys of every length from 0 to 300, some of 1,299 to 12,999 bytes, made alike in Python, Java and Go; golden/ says where
others send them."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

KEYS = 12_000
COUNTS = (1, 2, 3, 8, 200, 1000)
GOLDEN = Path(__file__).parent / "golden"
PROGRAM = GOLDEN / "GoldenPartitions.java"
JAVA = GOLDEN / "java-4.1.0.txt"
SARAMA = GOLDEN / "sarama-1.46.3.txt"


@cache
def golden_keys() -> pa.Array:
    numbers = np.arange(KEYS)
    lengths = np.where(numbers % 300 == 299, 1000 + numbers, numbers % 301)
    offsets = np.zeros(KEYS + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    mixed = np.arange(1, int(offsets[-1]) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    data = (mixed >> np.uint64(56)).astype(np.uint8)
    return pa.Array.from_buffers(pa.binary(), KEYS, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def summary(numbers: NDArray[np.int32]) -> list[str]:
    """As the golden programs print them: a digest, and the first ones for whoever looks for a difference."""
    return [hashlib.sha256(numbers.astype("<i4").tobytes()).hexdigest(), ",".join(map(str, numbers[:20].tolist()))]


def golden(path: Path, name: str) -> list[list[str]]:
    """The lines of that name, cut into words."""
    lines = [line.split(" ") for line in path.read_text().splitlines()]
    found = [words for first, *words in lines if first == name]
    assert found, f"{path.name} has no line {name}"
    return found


def numbers(text: str) -> list[int]:
    return [] if text == "-" else [int(number) for number in text.split(",")]
