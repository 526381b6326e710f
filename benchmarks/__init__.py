"""This sink beside what people use today, in one run on one machine: `python -m benchmarks`."""
