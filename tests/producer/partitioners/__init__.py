"""Tests of producer/partitioners/: where a row goes, and whether other clients would send it there."""
