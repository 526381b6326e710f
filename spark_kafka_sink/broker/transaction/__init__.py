"""Transactions: who may write under a transactional id, and the way of each transaction to its markers."""
