"""Faults for tests: errors, delays and truncation for selected requests, unreachable brokers, full disks, late markers."""
