"""The limits of bad rows, checked in the driver before anything is committed: `on.error.max.rows` and `on.error.max.fraction`."""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.counts import counted
from spark_kafka_sink.errors import TooManyBadRowsError
from spark_kafka_sink.options.error_options import MAX_FRACTION, MAX_ROWS, ErrorOptions
from spark_kafka_sink.reports.delivery_report import DeliveryReport
from spark_kafka_sink.spark.messages import total


def check_limits(errors: ErrorOptions, reports: Iterable[DeliveryReport], *, is_visible: bool) -> None:
    """Raises TooManyBadRowsError if a job or micro-batch has more bad rows than the options allow.

    Args:
        reports: those of all tasks.
        is_visible: whether the rows are in Kafka for good: not under exactly-once.
    """
    if errors.max_rows is None and errors.max_fraction is None:
        return
    summed = total(reports)
    bad = sum(summed.bad_rows.values())
    rows = summed.delivered + bad
    exceeds_rows = errors.max_rows is not None and bad > errors.max_rows
    # The quotient of 29 and 100 is the very number that 0.29 is read as. The product of 0.29 and 100 is less than 29.
    if exceeds_rows or (errors.max_fraction is not None and rows and bad / rows > errors.max_fraction):
        raise too_many(summed, errors, rows=rows, is_visible=is_visible)


def too_many(
    report: DeliveryReport,
    errors: ErrorOptions,
    *,
    rows: int | None = None,
    is_visible: bool | None = None,
    spark_partition: int = -1,
) -> TooManyBadRowsError:
    """Returns the error. rows: of the whole job or micro-batch; None: a task has too many by itself."""
    bad = sum(report.bad_rows.values())
    if errors.max_rows is not None and bad > errors.max_rows:
        option, limit = MAX_ROWS, f"{errors.max_rows:,}"
    else:
        option, limit = MAX_FRACTION, f"{errors.max_fraction:g}"
    reasons = ", ".join(f"{name} {count:,}" for name, count in sorted(report.bad_rows.items()))
    where = f"Spark partition {spark_partition}: " if spark_partition >= 0 else ""
    of = "" if rows is None else f" of {rows:,}"
    are = "is" if bad == 1 else "are"
    text = f"{where}{counted(bad, 'row')}{of} {are} bad ({reasons}), more than {option}={limit} allows"
    outcome = {
        None: "",
        True: " The other rows and the dead letters stay in their topics, and writing again writes them again.",
        False: " None of the rows and dead letters is visible to consumers that read committed.",
    }[is_visible]
    return TooManyBadRowsError(
        f"{text}; one of the errors: {report.bad_row_example}. Correct the rows, or raise {option}.{outcome}",
        option=option,
        bad_rows=bad,
        rows=rows,
        reasons=dict(report.bad_rows),
    )
