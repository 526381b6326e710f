"""How the sink behaves at sizes that no benchmark of throughput reaches: many partitions, workers and tasks."""
