"""Tests of the schema registry's client, on a real registry and on a stand-in."""
