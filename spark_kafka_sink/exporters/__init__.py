"""Exports what a driver delivered to systems that watch programs: Prometheus and OpenTelemetry.

`families.py` lists the metrics, once for all systems. Nothing here is imported unless a program asks for it.
"""
