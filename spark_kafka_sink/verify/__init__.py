"""Reads topics back with another client, and compares them with the data that was written."""
