"""Tests of what commits a batch."""
