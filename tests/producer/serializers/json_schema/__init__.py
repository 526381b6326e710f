"""Tests of JSON Schema."""
