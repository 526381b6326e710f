"""Who speaks for a group of records: a task, single records of a topic, a transaction."""
