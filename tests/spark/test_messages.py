from __future__ import annotations

import pickle

import pytest

from spark_kafka_sink.errors import UsageError
from spark_kafka_sink.exactly_once.share import Batch, Share
from spark_kafka_sink.producer.report import DeliveryReport
from spark_kafka_sink.spark.messages import DeliveryMessage, check_complete, reports_of, shares_of, total


def test_messages_pickle_with_their_reports() -> None:
    message = DeliveryMessage(3, DeliveryReport(records=5))
    assert pickle.loads(pickle.dumps(message)) == message


def test_a_commit_of_what_no_task_wrote_is_refused() -> None:
    check_complete([])
    check_complete([DeliveryMessage(0, DeliveryReport())])
    with pytest.raises(UsageError, match=r"trigger\(continuous=\.\.\.\) is not supported"):
        check_complete([DeliveryMessage(0, DeliveryReport()), None])


def test_failed_tasks_have_no_report() -> None:
    assert total(
        reports_of([None, DeliveryMessage(0, DeliveryReport(records=2)), DeliveryMessage(1, DeliveryReport(records=3))])
    ) == (DeliveryReport(records=5))


def test_the_shares_of_finished_tasks_are_those_that_have_one() -> None:
    share = Share(Batch("query", 3), None)
    messages = [DeliveryMessage(0, DeliveryReport(), share), None, DeliveryMessage(1)]
    assert shares_of(messages) == [share]
    assert pickle.loads(pickle.dumps(messages[0])) == messages[0]
