"""Every rule that is there for safety, and commits without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from spark_kafka_sink.exactly_once import commit_rules, recovery_rules
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State
from spark_kafka_sink.exactly_once.commit_rules import Commit, Done, Step, View, Write
from spark_kafka_sink.exactly_once.proof import Outcome
from spark_kafka_sink.exactly_once.recovery_rules import Refused
from tests.exactly_once.model.configuration import replay


def _with_last(view: View, change: Callable[[View, CommitRecord], CommitRecord | None]) -> Step:
    """As if the log said something else."""
    return commit_rules.decide(view if view.last is None else replace(view, last=change(view, view.last)))


def _complete_before(view: View) -> Callable[[View, CommitRecord], CommitRecord]:
    return lambda _, last: replace(last, batch=view.batch - 1, state=State.COMPLETE)


def goes_on_behind(view: View) -> Step:
    is_behind = view.last is not None and view.batch < view.last.batch
    return _with_last(view, _complete_before(view)) if is_behind else commit_rules.decide(view)


def goes_on_after_unfinished(view: View) -> Step:
    is_next = view.last is not None and view.batch == view.last.batch + 1
    return _with_last(view, _complete_before(view)) if is_next else commit_rules.decide(view)


def goes_on_over_gap(view: View) -> Step:
    has_gap = view.last is not None and view.batch > view.last.batch + 1
    return _with_last(view, _complete_before(view)) if has_gap else commit_rules.decide(view)


def goes_on_without_record(view: View) -> Step:
    return commit_rules.decide(replace(view, start=view.batch))


def writes_complete_batch_again(view: View) -> Step:
    is_complete = view.last is not None and (view.last.batch, view.last.state) == (view.batch, State.COMPLETE)
    is_own = is_complete and view.last is not None and set(view.last.handles) & set(view.own_handles)
    return _with_last(view, _complete_before(view)) if is_complete and not is_own else commit_rules.decide(view)


def writes_prepared_batch_again(view: View) -> Step:
    is_prepared = view.last is not None and (view.last.batch, view.last.state) == (view.batch, State.PREPARED)
    is_own = is_prepared and view.last is not None and set(view.last.handles) & set(view.own_handles)
    return _with_last(view, _complete_before(view)) if is_prepared and not is_own else commit_rules.decide(view)


def ignores_totals(view: View) -> Step:
    is_same = view.last is not None and view.last.batch == view.batch
    return _with_last(view, lambda _, last: replace(last, rows=view.rows)) if is_same else commit_rules.decide(view)


def compares_stored_rows(view: View) -> Step:
    """As if all that tells of a task's rows were its transaction."""
    last = view.last
    return commit_rules.decide(replace(view, tasks=(), last=None if last is None else replace(last, tasks=())))


def begins_over(state: State) -> Callable[[View], Step]:
    """At commit.log.start, though the batch before is not at its end."""

    def without(view: View) -> Step:
        last = view.last
        is_left = last is not None and last.state is state and last.batch < view.batch == view.start
        return _with_last(view, _complete_before(view)) if is_left else commit_rules.decide(view)

    return without


def ignores_closed(view: View) -> Step:
    is_closed = view.last is not None and view.last.state is State.CLOSED
    return commit_rules.decide(replace(view, last=None)) if is_closed else commit_rules.decide(view)


def ignores_age(view: View) -> Step:
    return commit_rules.decide(replace(view, now_ms=0))


def ignores_partitions(view: View) -> Step:
    if view.described is None:
        return commit_rules.decide(view)
    where = {each.transactional_id: each.partitions for each in view.own_handles}
    described = {each: replace(said, partitions=where[each]) for each, said in view.described.items()}
    return commit_rules.decide(replace(view, described=described))


def takes_unknown_for_aborted(view: View) -> Step:
    return commit_rules.decide(_without_unknown(view))


def _without_unknown(view: View) -> View:
    if view.outcomes is None:
        return view
    return replace(view, outcomes={k: Outcome.ABORTED if v is Outcome.UNKNOWN else v for k, v in view.outcomes.items()})


def takes_some_aborted_for_all(view: View) -> Step:
    if view.outcomes is None or Outcome.ABORTED not in view.outcomes.values():
        return commit_rules.decide(view)
    return commit_rules.decide(replace(view, outcomes=dict.fromkeys(view.outcomes, Outcome.ABORTED)))


def judges_without_reading_again(view: View) -> Step:
    return commit_rules.decide(replace(view, reread=view.reread or view.outcomes is not None))


def gives_up_without_reading_again(view: View) -> Step:
    return commit_rules.decide(replace(view, reread=view.reread or view.outcomes is None))


def completes_before_commit(view: View) -> Step:
    step = commit_rules.decide(view)
    if isinstance(step, Commit):
        return commit_rules.decide(replace(view, outcomes={each.transactional_id: Outcome.COMMITTED for each in step.handles}))
    if isinstance(step, Done) and view.outcomes is None and view.last is not None:
        own = set(view.own_handles) & set(view.last.handles)
        return Commit(tuple(own)) if own else step
    return step


def commits_without_prepared(view: View) -> Step:
    step = commit_rules.decide(view)
    if not (isinstance(step, Write) and step.state is State.PREPARED):
        return step
    if view.outcomes is None:
        return Commit(tuple(each.handle for each in step.transactions))
    return replace(step, state=State.COMPLETE)


def completes_without_telling(view: View) -> Step:
    is_complete = view.last is not None and (view.last.batch, view.last.state) == (view.batch, State.COMPLETE)
    if not is_complete:
        return commit_rules.decide(view)
    return _with_last(replace(view, gone=frozenset()), lambda _, last: replace(last, topic_ids=()))


def replays_without_checksum(view: View) -> Step:
    if view.last is None or view.last.state is not State.REPLAY:
        return commit_rules.decide(view)
    before = {each.spark_partition: each.checksum for each in view.last.passed}
    tasks = tuple(replace(each, checksum=before.get(each.spark_partition, 0)) for each in view.passed)
    return commit_rules.decide(replace(view, tasks=tasks))


def writes_all_again(view: View) -> Step:
    step = commit_rules.decide(view)
    if isinstance(step, Write) and step.state is State.REPLAY:
        return replace(step, state=State.ABORTED, committed=(), aborted=())
    return step


def aborts_before_closed(view: View) -> Step | Refused:
    step = recovery_rules.abort(view)
    return Done(tuple(each.handle for each in step.transactions)) if isinstance(step, Write) else step


def aborts_what_is_prepared(view: View) -> Step | Refused:
    is_prepared = view.last is not None and view.last.state is State.PREPARED
    return recovery_rules.abort(replace(view, last=None) if is_prepared else view)


def aborts_what_is_to_be_replayed(view: View) -> Step | Refused:
    """And writes of the last batch what it was, with more to be aborted."""
    if view.last is None or view.last.state is not State.REPLAY:
        return recovery_rules.abort(view)
    step = recovery_rules.abort(replace(view, last=replace(view.last, state=State.ABORTED)))
    return replace(step, state=State.REPLAY) if isinstance(step, Write) else step


def forgets_last_record(view: View) -> Step | Refused:
    step = recovery_rules.abort(view)
    return replace(step, state=State.CLOSED) if isinstance(step, Write) else step


def replays_unknown(view: View) -> Step | Refused:
    return replay(_without_unknown(view))


def replays_committed(view: View) -> Step | Refused:
    step = replay(view)
    if isinstance(step, Write) and step.state is State.REPLAY:
        return replace(step, committed=(), aborted=tuple(each.handle.transactional_id for each in step.transactions))
    return step
