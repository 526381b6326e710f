"""Brokers and a transaction coordinator in memory, with a clock that a test moves: for models of the producer."""
