"""The producer's identity at the brokers: none, idempotent, or transactional (transactions/)."""
