"""Transactions: their states, and the requests to coordinators that lead from one to the next."""
