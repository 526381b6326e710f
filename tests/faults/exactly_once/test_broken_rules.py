"""The suite notices when a rule is broken: rows are there twice, or lost, or transactions left open, or the query stops."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.exactly_once import broken
from tests.faults.exactly_once.conftest import MovedRows
from tests.faults.exactly_once.driver import Fleet
from tests.faults.exactly_once.kills import COMMITTED_IN_PART, Kill, Victim
from tests.faults.exactly_once.siege import Siege
from tests.faults.exactly_once.stepping import pair, replaced_while_paused
from tests.kafka.brokers import Brokers

pytestmark = [pytest.mark.spark, pytest.mark.chaos, pytest.mark.embedded, pytest.mark.timeout(300)]

BREAKING = Path(__file__).with_name("breaking")
PYTHON = Victim.PYTHON

# What nobody flushes is not sent by itself.
NOT_SENT = {"kafka.linger.ms": "600000", "kafka.delivery.timeout.ms": "700000"}

NOT_TO_BE_SAVED = r"(?s)failed by itself: .*\[COMMIT_STOPPED\] .* not all are proved to be aborted"
# An empty log beside committed transactions: the killed batch is the query's first.
NO_RECORD = r"(?s)failed by itself: .*\[COMMIT_LOG_DELETED\] .* transactions (is|are) committed"
# Or Spark's abort, which does not read the log either, has closed the run first: then the committed ones are seen.
TWICE = f"{NO_RECORD}|rows twice"
# Whether the next batch's tasks take the ids again, which aborts what nobody ended.
FORSAKEN = "left open|rows lost"
# How many batches were sent because they were full is chance, the last ones of a task never are.
FORGOTTEN = "rows lost|the batch had a different number of rows before"
# When Spark aborts the batch, whoever is not killed commits what is prepared, before there is another attempt.
ABORT_TOO = Kill(PYTHON, "log.after", again=True)
# Which kills, and what the suite then says. Until the kill the query works.
NOTICED = {
    "": ([Kill(PYTHON, "end.after")], None),
    "the_log_is_not_read": ([Kill(PYTHON, "end.after")], TWICE),
    "leftovers_are_committed": ([Kill(PYTHON, "flush.after")], "rows twice"),
    "complete_is_written_first": ([Kill(PYTHON, "end.before")], FORSAKEN),
    "prepared_is_written_last": ([Kill(PYTHON, "prepared.before")], NO_RECORD),
    "attempts_share_ids": ([Kill(PYTHON, "end.after"), ABORT_TOO], NOT_TO_BE_SAVED),
    "nothing_is_swept": ([Kill(PYTHON, "flush.after")], "left open"),
    "nothing_is_flushed": ([Kill(PYTHON, "prepared.after")], FORGOTTEN),
    "a_run_begins_with_a_sweep": ([COMMITTED_IN_PART], NOT_TO_BE_SAVED),
}
# What takes two drivers.
NOT_CLAIMED = "the_log_is_not_claimed"


@pytest.fixture(scope="module")
def rule_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("broken") / "rule"


@pytest.fixture(scope="module")
def breakable(rule_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Drivers that do what `rule_file` says."""
    environment = {broken.VARIABLE: str(rule_file), "PYTHONPATH": str(BREAKING)}
    rule_file.write_text("")
    with Fleet(tmp_path_factory.mktemp("breakable"), environment) as made:
        yield made


def test_all_rules_that_can_be_broken_are() -> None:
    assert set(NOTICED) == {"", *broken.RULES} - {NOT_CLAIMED}


@pytest.mark.fault("spark", "a rule that is broken in the code")
@pytest.mark.whole("a driver's start each")
@pytest.mark.parametrize("rule", NOTICED)
def test_a_broken_rule_is_noticed(
    rule: str, rule_file: Path, three_brokers: Brokers, breakable: Fleet, moved_rows: MovedRows
) -> None:
    kills, complaint = NOTICED[rule]
    rows, query = moved_rows(three_brokers, 4, **NOT_SENT)
    rule_file.write_text(rule)
    with Siege(three_brokers, [query], breakable) as siege:
        if complaint is None:
            siege.run(kills)
            siege.judge(rows)
        else:
            with pytest.raises(AssertionError, match=complaint):
                siege.run(kills)
                siege.judge(rows)
        assert siege.made == kills


@pytest.mark.fault("spark", "a rule that is broken in the code")
@pytest.mark.whole("a driver's start")
def test_a_log_that_is_not_claimed_is_noticed(
    rule_file: Path, three_brokers: Brokers, breakable: Fleet, moved_rows: MovedRows
) -> None:
    """The old driver goes on, and calls aborted what its successor has committed: `test_two_drivers.py` refuses that."""
    _, query = moved_rows(three_brokers, 4)
    rule_file.write_text(NOT_CLAIMED)
    with pair(breakable) as drivers:
        ended = replaced_while_paused(*drivers, query, "prepared.before", 2)
    assert ended.event == "failed"
    assert "[BATCH_ABORTED] batch 2" in ended.facts["text"]
