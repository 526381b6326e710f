"""Measures what a row costs the executor, in this sink and in its peers: `python -m benchmarks.cost`."""
