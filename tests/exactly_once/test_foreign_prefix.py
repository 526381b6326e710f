"""A query keeps its prefix of transactional ids."""

from __future__ import annotations

import pytest

from spark_kafka_sink.errors import OptionError
from spark_kafka_sink.exactly_once.commit_record import PreparedTransaction
from spark_kafka_sink.exactly_once.committer import Committer
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch
from spark_kafka_sink.exactly_once.transaction_client import TransactionClient
from spark_kafka_sink.exactly_once.transactional_ids import TransactionalIds
from tests.exactly_once.opened import opened, soon
from tests.exactly_once.queries import PREFIX, Query


def test_a_query_whose_prefix_was_changed_is_refused_as_nobody_would_fence_its_old_driver(query: Query) -> None:
    query.run(0, "a")
    ids = TransactionalIds("other-prefix", query.id)
    own = (PreparedTransaction(opened(query.client, query.topic, "b", ids.for_slot("cafe", 0)), 0, 0),)
    transactions = TransactionClient(query.client)
    with pytest.raises(OptionError, match=f"option transactional.id.prefix: .* with the prefix {PREFIX}; set it as it was"):
        Committer(query.log(), transactions, ids.prefix, 30).commit(MicroBatch(query.id, 1), own)
    assert transactions.open_handles(ids, soon()) == ()
    query.run(1, "c")
    query.expect("a", "c")
