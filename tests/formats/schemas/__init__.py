"""Tests of what all formats with a schema share."""
