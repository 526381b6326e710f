"""Micro-batches of many tasks under exactly-once: what their commit takes in the driver, in the commit log and in brokers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import psutil

from benchmarks.environment import BROKER_HEAP_MB, BROKER_SETTINGS
from benchmarks.pictures import COLORS, keep, kept, machine, saved_figure
from benchmarks.scale.open_transactions import OpenTransactions
from docs.markdown import table
from spark_kafka_sink.client.cluster_client import ClusterClient
from spark_kafka_sink.exactly_once.commit_log import Claim, CommitLog
from spark_kafka_sink.exactly_once.commit_record import CommitRecord, State, encode
from spark_kafka_sink.exactly_once.committer import Committer, OwnTransactions
from spark_kafka_sink.exactly_once.micro_batch import MicroBatch, TransactionalIds
from spark_kafka_sink.exactly_once.proof import TransactionDescription
from spark_kafka_sink.exactly_once.transaction_client import ONGOING, Ended, TransactionClient
from spark_kafka_sink.options.guarantee_options import CommitLogSettings
from spark_kafka_sink.options.producer_options import producer_config
from spark_kafka_sink.producer.transactions.handle import TransactionHandle
from tests.kafka.cluster import FULL_SPEED, KafkaCluster

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

T = TypeVar("T")

NAME: Final = "scale_tasks"
PICTURES: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
# By number of brokers. The test brokers have 4 partitions for transactions by default, Kafka has 50.
FULL: Final[Mapping[int, Sequence[int]]] = {1: (10, 100, 1_000, 10_000), 3: (1_000, 10_000)}
QUICK: Final[Mapping[int, Sequence[int]]] = {1: (10, 200)}
SLOTS = 100  # transactional ids of each worker
PARTITIONS = 8
_LOG = "scale-commits"
_SETTINGS: Final = {**BROKER_SETTINGS, "transaction.state.log.num.partitions": "50"}
_DEADLINE_S = 225.0  # a quarter of 15 minutes, as the sink's commits have

KINDS = FIRST, LATER, RESUMED, ABORTED = "first commit", "later commit", "resumed", "aborted"


@dataclass(frozen=True, slots=True)
class Sample:
    """One call. Times are in s: of the whole, and of its parts.

    init_s, write_s: what tasks did before, pipelined: InitProducerId, and one Produce each. cpu_s: of this process. broker_cpu_s:
    of all brokers. record_bytes: of the batch's record in the commit log. memory_mib: growth of this process in the call.
    """

    kind: str
    brokers: int
    tasks: int
    init_s: float
    write_s: float
    seconds: float
    claim_s: float
    describe_s: float
    list_s: float
    end_s: float
    cpu_s: float
    broker_cpu_s: float
    record_bytes: int
    memory_mib: float


class _TimedLog(CommitLog):
    """Adds up the time of claims, each of which reads the log."""

    def __init__(self, client: ClusterClient, settings: CommitLogSettings, spent: dict[str, float]) -> None:
        super().__init__(client, settings)
        self._spent = spent

    def claim(self, ids: TransactionalIds, deadline: float) -> Claim:
        return _timed(self._spent, "claim", lambda: super(_TimedLog, self).claim(ids, deadline))


class _TimedTransactions(TransactionClient):
    """Adds up the time of each kind of request."""

    def __init__(self, client: ClusterClient, spent: dict[str, float]) -> None:
        super().__init__(client)
        self._spent = spent

    def describe(self, ids: Collection[str], deadline: float) -> dict[str, TransactionDescription]:
        return _timed(self._spent, "describe", lambda: super(_TimedTransactions, self).describe(ids, deadline))

    def list_open(self, prefix: str, deadline: float, *, example: str = "", states: tuple[str, ...] = (ONGOING,)) -> list[str]:
        listed = super().list_open
        return _timed(self._spent, "list", lambda: listed(prefix, deadline, example=example, states=states))

    def end(
        self, handles: Iterable[TransactionHandle], committed: bool, deadline: float, batch: int | None = None
    ) -> dict[str, Ended]:
        return _timed(self._spent, "end", lambda: super(_TimedTransactions, self).end(handles, committed, deadline, batch))


def _timed(spent: dict[str, float], name: str, call: Callable[[], T]) -> T:
    begun = time.perf_counter()
    try:
        return call()
    finally:
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - begun


@dataclass(slots=True)
class _Driver:
    """A driver process, as far as commits go: its own connections and what it knows of the log."""

    client: ClusterClient
    spent: dict[str, float] = field(default_factory=dict)
    log: CommitLog = field(init=False)
    committer: Committer = field(init=False)

    def __post_init__(self) -> None:
        settings = CommitLogSettings(_LOG, partitions=1)
        self.log = _TimedLog(self.client, settings, self.spent)
        self.committer = Committer(self.log, _TimedTransactions(self.client, self.spent), "scale", _DEADLINE_S)


@dataclass(slots=True)
class _Cluster:
    """One cluster, and the samples that are taken on it."""

    kafka: KafkaCluster
    topic: str
    samples: list[Sample]

    def measure(self, tasks: int) -> None:
        """Commits two micro-batches, then one that a lost driver has prepared, and aborts a job."""
        config = producer_config({"bootstrap.servers": self.kafka.bootstrap_servers, "transaction.timeout.ms": 15 * 60 * 1000})
        with ClusterClient(config) as one, ClusterClient(config) as another, ClusterClient(config) as opener:
            driver, ids = _Driver(one), TransactionalIds("scale", str(uuid.uuid4()))
            opened = OpenTransactions(opener, self.topic, PARTITIONS)
            for number, kind in enumerate((FIRST, LATER)):
                own = opened.open(_names(ids, tasks, 0), _soon())
                self._call(kind, driver, opened, own, partial(driver.committer.commit, MicroBatch(ids.query_id, number), own))
            lost = opened.open(_names(ids, tasks, 0), _soon())
            driver.log.claim(ids, _soon()).write(_record(ids, lost), _soon())
            own = opened.open(_names(ids, tasks, tasks), _soon())
            new = _Driver(another)
            self._call(RESUMED, new, opened, own, lambda: new.committer.commit(MicroBatch(ids.query_id, 2), own))
            job = MicroBatch.of_new_job()
            failed = opened.open(_names(TransactionalIds("scale", job.query_id), tasks, 0), _soon())
            self._call(ABORTED, new, opened, failed, lambda: new.committer.abort_job(job, failed))

    def _call(
        self, kind: str, driver: _Driver, opened: OpenTransactions, own: OwnTransactions, call: Callable[[], object]
    ) -> None:
        driver.spent.clear()
        process, before = psutil.Process(), self._broker_cpu_s()
        memory, cpu, begun = process.memory_info().rss, time.process_time(), time.perf_counter()
        call()
        seconds, cpu = time.perf_counter() - begun, time.process_time() - cpu
        claim_s, describe_s, list_s, end_s = (
            round(driver.spent.get(name, 0.0), 4) for name in ("claim", "describe", "list", "end")
        )
        self.samples.append(
            Sample(
                kind,
                len(self.kafka.broker_ids),
                len(own),
                round(opened.init_s, 4),
                round(opened.produce_s, 4),
                round(seconds, 4),
                claim_s,
                describe_s,
                list_s,
                end_s,
                round(cpu, 4),
                round(self._broker_cpu_s() - before, 2),
                sum(map(len, encode(_record(TransactionalIds("scale", str(uuid.uuid4())), own)))),
                round((process.memory_info().rss - memory) / 2**20, 1),
            )
        )

    def _broker_cpu_s(self) -> float:
        return sum(sum(psutil.Process(self.kafka.pid(each)).cpu_times()[:2]) for each in self.kafka.broker_ids)


def _names(ids: TransactionalIds, tasks: int, first: int) -> list[str]:
    return [ids.for_slot(f"{number // SLOTS:016x}", number % SLOTS) for number in range(first, first + tasks)]


def _record(ids: TransactionalIds, own: OwnTransactions) -> CommitRecord:
    return CommitRecord(ids.query_id, 2, State.PREPARED, uuid.uuid4().hex[:16], sum(each.handle.records for each in own), own)


def _soon() -> float:
    return time.monotonic() + _DEADLINE_S


def measure(quick: bool, folder: Path) -> None:
    """Measures on real Kafka and writes scale_tasks.csv and scale_tasks.svg into the folder."""
    samples: list[Sample] = []
    for brokers, sizes in (QUICK if quick else FULL).items():
        with KafkaCluster(brokers, _SETTINGS, heap_mb=BROKER_HEAP_MB, java_options=FULL_SPEED) as kafka:
            cluster = _Cluster(kafka, kafka.create_topic("scale-tasks", PARTITIONS), samples)
            for tasks in sizes:
                cluster.measure(tasks)
    keep(folder / f"{NAME}.csv", machine(), samples)
    draw(folder)


def draw(folder: Path) -> None:
    """Draws the samples of a folder beside them."""
    measured_on, samples = kept(folder / f"{NAME}.csv", Sample)
    one_broker = [sample for sample in samples if sample.brokers == 1]
    with saved_figure(folder / f"{NAME}.svg", measured_on) as axes:
        for kind, color in zip((LATER, RESUMED, ABORTED), COLORS, strict=True):
            some = [sample for sample in one_broker if sample.kind == kind]
            axes[0].plot([s.tasks for s in some], [s.seconds for s in some], "o-", color=color, label=kind)
        some = [sample for sample in one_broker if sample.kind == LATER]
        axes[1].plot([s.tasks for s in some], [1000 * s.seconds / s.tasks for s in some], "o-", color=COLORS[0], label="commit")
        axes[1].plot([s.tasks for s in some], [1000 * s.cpu_s / s.tasks for s in some], "s-", color=COLORS[1], label="driver CPU")
        axes[0].set_ylabel("seconds")
        axes[1].set_ylabel("ms per task, later commit")
        for each in axes:
            each.set_xscale("log")
            each.set_yscale("log")
            each.set_xlabel("tasks of a micro-batch (1 broker)")
            each.legend(frameon=False)


def tables(path: Path = PICTURES / f"{NAME}.csv") -> str:
    """Returns the table of docs/measurements.md: the seconds of each call, and more of a later commit."""
    measured_on, samples = kept(path, Sample)
    found = {(each.brokers, each.tasks, each.kind): each for each in samples}
    lines = []
    for brokers, tasks in dict.fromkeys((each.brokers, each.tasks) for each in samples):
        calls = [found[brokers, tasks, kind] for kind in KINDS]
        later = found[brokers, tasks, LATER]
        rate = f"{tasks / later.end_s:,.0f}" if later.end_s else ""
        size = f"{later.record_bytes / 1000:,.0f}"
        more = [_s(later.cpu_s), _s(later.broker_cpu_s), rate, size]
        lines.append([str(brokers), f"{tasks:,}", *(_s(each.seconds) for each in calls), *more])
    heads = ["brokers", "tasks", *KINDS, "driver CPU", "brokers' CPU", "EndTxn per second", "record, KB"]
    return f"{table(heads, lines)}\nMeasured on {measured_on}.\n"


def _s(seconds: float) -> str:
    return f"{seconds:,.2f}" if seconds < 10 else f"{seconds:,.0f}"
