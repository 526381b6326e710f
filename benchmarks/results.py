"""What is measured, of whom: plain numbers with names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SINK, JVM, JVM_TUNED, CONFLUENT, CEILING = "sink", "jvm", "jvm tuned", "confluent", "ceiling"
SEND, KAFKA_PYTHON = "send", "kafka-python"
EMBEDDED, BUSY_CONNECTION = "embedded", "connection"
AT_LEAST_ONCE, EXACTLY_ONCE = "at-least-once", "exactly-once"
COMMIT, LOG_READ, COLD_LOG_READ = "commit", "log read", "cold log read"
SINK_TLS, SINK_SCRAM, JVM_TLS = "sink TLS", "sink SCRAM", "jvm TLS"
START, START_SASL_SSL = "start", "start SASL_SSL"


@dataclass(frozen=True, slots=True)
class Run:
    """One contender once. `cpu_s`: of all Python workers; `peak_rss`: bytes of the largest one, 0 where it was not sampled.

    Of a BUSY_CONNECTION there is a run for each connection, with requests for rows and the broker's memory. Cells of
    micro-batches have those for rows. ids: transactional ids that a query has left behind; most_ids: how many its workers and
    their slots allow, with those of workers that are gone; log_bytes: of the commit log on disk, at its largest.
    """

    rows: int
    seconds: float
    cpu_s: float
    peak_rss: int = 0
    ids: int = 0
    most_ids: int = 0
    log_bytes: int = 0

    @property
    def rows_per_s(self) -> float:
        return self.rows / self.seconds

    @property
    def ms_each(self) -> float:
        """Milliseconds a row, where rows are micro-batches or commits."""
        return self.seconds / self.rows * 1000

    @property
    def cpu_per_million(self) -> float:
        """CPU seconds per million rows, which is also microseconds per row."""
        return self.cpu_s / self.rows * 1e6


Runs = Mapping[str, Sequence[Run]]  # of one cell: contender -> its runs, one a round
Results = Mapping[str, Runs]  # cell -> contender -> runs
