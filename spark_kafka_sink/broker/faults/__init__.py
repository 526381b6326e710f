"""Faults for tests: errors, delays and cuts of chosen requests, unreachable brokers, full disks, late markers."""
