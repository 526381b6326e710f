"""Compares this sink with its alternatives, in one run on one machine: `python -m benchmarks`."""
