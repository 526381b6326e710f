"""Scopes that group records: of a task, of the single records of a topic, or of a transaction."""
