"""Exports what a driver delivered to systems that watch programs: Prometheus, OpenTelemetry and OpenLineage.

`metric_families.py` lists the metrics, once for all systems. `lineage_runs.py` decides on
the events of lineage. Nothing here is imported unless a program asks for it.
"""
