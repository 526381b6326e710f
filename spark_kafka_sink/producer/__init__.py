"""Station 2: what happens to a record: producer, partitioners, record accumulator, buffer pool, sender, error policy."""
