"""Transactions of a producer: the states, and the requests to coordinators that change them.

`transaction_calls.py`: begin, commit and abort, as a program calls them, and the `Identity` that the sender asks.
`handle.py`: an open transaction that another process can end.
`transaction_manager.py`: one transactional id: its state, its open transaction and its next request.
`states.py`: the states, the calls that each allows, and the reaction to each error code.
`requests.py`, `offsets.py`: the requests as values.
`coordinator_client.py`: sends the requests in the sender thread.
`verification.py`: which brokers are new enough for transactions that other processes end.
"""
