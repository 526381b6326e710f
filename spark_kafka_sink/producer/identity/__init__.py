"""Who the brokers think the producer is: nobody, an idempotent producer, or a transactional one (transactions/)."""
