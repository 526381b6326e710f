"""Transactions: the owners of transactional ids, and the markers that end each transaction."""
