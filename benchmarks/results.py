"""Results of measurements: plain numbers with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SINK, JVM, JVM_TUNED, CONFLUENT, CEILING = "sink", "jvm", "jvm tuned", "confluent", "ceiling"
SEND, KAFKA_PYTHON = "send", "kafka-python"
EMBEDDED = "embedded"
PARQUET, SINK_EXACTLY_ONCE = "parquet", "sink exactly once"
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
COMMIT, LOG_READ, COLD_LOG_READ = "commit", "log read", "cold log read"
FASTAVRO, PYRUHVRO, PYRUHVRO_PREFIXED = "fastavro", "pyruhvro", "pyruhvro prefixed"
AVRO_APPEND, BYTES_APPEND = "append", "append bytes"


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a contender.

    rows: micro-batches in cells of micro-batches. cpu_s: of all Python workers. peak_rss: bytes of the largest worker; 0 if it
    was not sampled. ids: transactional ids that a query left behind. most_ids: the number that its workers and their slots
    allow, including lost workers. log_bytes: the largest size of the commit log on disk. jvm_s: CPU seconds of Spark's JVM.
    planners_s: those of the driver's Python processes, which plan and commit.
    """

    rows: int
    seconds: float
    cpu_s: float
    peak_rss: int = 0
    ids: int = 0
    most_ids: int = 0
    log_bytes: int = 0
    jvm_s: float = 0.0
    planners_s: float = 0.0

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def ms_each(self) -> float:
        """Milliseconds per row, if rows are micro-batches or commits."""
        return self.seconds / self.rows * 1000

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds of Python per million rows, which is also microseconds per row."""
        return self.cpu_s / self.rows * 1e6

    @property
    def jvm_per_million(self) -> float:
        """CPU seconds of Spark's JVM per million rows."""
        return self.jvm_s / self.rows * 1e6


Runs = Mapping[str, Sequence[Run]]  # of one cell: contender -> its runs, one a round
Results = Mapping[str, Runs]  # cell -> contender -> runs
