"""Tests of comparing topics with what was written."""
