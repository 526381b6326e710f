"""A partition for every row: what `partitioner.class` names, and the hashes of keys that it takes."""
