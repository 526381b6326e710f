"""Where rows arrive: from a DataFrame, a stream or Row iterators to the producer, and the numbers back to the driver."""
