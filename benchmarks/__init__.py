"""Compares this sink and its parts with alternatives, in one run on one machine: `make bench` and `make bench-parts`."""
