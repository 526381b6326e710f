"""Transactions of a producer: their states, and the requests to coordinators that lead from one to the next.

`transaction_calls.py`: begin, commit and abort as a program calls them. `handle.py`: an open one, for another process to end.
`transaction_manager.py`: one transactional id; its state, its open transaction and its next request.
`states.py`: the states and the calls that each allows. `requests.py`, `offsets.py`: the requests as values.
`coordinator_client.py`: sends the requests in the sender's thread. `reactions.py`: what follows from each error code.
`transactional_identity.py`: the `Identity` of a transactional producer; what the sender asks before and after each batch.
`verification.py`: which brokers are new enough for transactions that other processes end.
"""
