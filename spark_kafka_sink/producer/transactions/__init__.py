"""Transactions of a producer: the states, and the requests to coordinators that change them.

`transaction_calls.py`: begin, commit and abort, as a program calls them.
`handle.py`: an open transaction that another process can end.
`transaction_manager.py`: one transactional id: its state, its open transaction and its next request.
`states.py`: the states and the calls that each allows.
`requests.py`, `offsets.py`: the requests as values.
`coordinator_client.py`: sends the requests in the sender thread.
`reactions.py`: the reaction to each error code.
`transactional_identity.py`: the `Identity` of a transactional producer; what the sender asks before and after each batch.
`verification.py`: which brokers are new enough for transactions that other processes end.
"""
