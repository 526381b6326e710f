"""The Spark side: takes rows from a DataFrame, a stream or Row iterators to the producer, and reports back to the driver."""
