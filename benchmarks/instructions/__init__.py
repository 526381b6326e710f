"""Instruction counts of the engine's hot paths, compared with a committed baseline."""
