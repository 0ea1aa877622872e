"""Training sets on Spark: thousands of sets of topics are simulated, and become a Parquet dataset with features.

Sets pass through the compiled simulator in batches and come out as Arrow batches. Every set is drawn and simulated from
seeds of its own, so the dataset does not depend on partitions or machines.
"""

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Window
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from trimtab.errors import BadInput, BadKnob
from trimtab.model.hardware import Hardware
from trimtab.predict.accuracy import BOUND_MS
from trimtab.predict.configurations import PROCESSING_MS, REQUEST, highest_rates, packed_request, random_set
from trimtab.predict.queueing import Queueing
from trimtab.predict.samples import Samples, read_provenance, write_provenance
from trimtab.predict.simulator import DURATION_S, QUANTILES, WARM_UP_S, Hosted, simulate
from trimtab.predict.trim import Trim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from trimtab.model.workload import Floats
    from trimtab.predict.sets import Ints

TRAIN, TEST, PACKED = "train", "test", "packed"
SIMULATED: Final = "simulated"  # source of samples in their provenance
PARTS: Final = 32  # tasks; the progress bar counts them
BATCH: Final = 64  # sets that are simulated between two batches of rows
RUNS: Final = (
    "set long, number int, packed boolean, topic int, rate double, processing_ms double, messages long, p50_ms double, "
    "p90_ms double, p99_ms double, cpu double"
)
BACKGROUND: Final = {"processing_ms": "others_ms", "rate": "others_rate", "load_ms": "others_load_ms"}
POLL_S: Final = 0.2  # between looks at the progress


@dataclass(frozen=True, slots=True)
class Plan:
    """What is simulated: random sets of every size from 1 to ``most``, and requests that are packed into sets."""

    hardware: Hardware
    most: int = 6
    configurations: int = 1000  # sets of each size to train on
    tests: int = 250  # sets of each size that no model is fitted on
    requests: int = 180  # of 100 topics each, which become 22 packed sets or so
    seed: int = 0
    run_s: float = DURATION_S
    processing_ms: tuple[float, ...] = PROCESSING_MS  # that topics are drawn from
    bound_ms: float = BOUND_MS  # up to which rates are drawn and requests are packed

    def as_json(self) -> str:
        values = {name: getattr(self, name) for name in self.__slots__ if name != "hardware"}
        return json.dumps({"hardware": self.hardware.as_json()} | values)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        values = json.loads(text)
        hardware, processing = Hardware.from_json(values["hardware"]), tuple(values["processing_ms"])
        return cls(**(values | {"hardware": hardware, "processing_ms": processing}))

    def __post_init__(self) -> None:
        for name, least in (("most", 1), ("configurations", 1), ("tests", 1), ("requests", 0)):
            if getattr(self, name) < least:
                raise BadKnob("training", name, getattr(self, name), f"{least} or more")
        if not WARM_UP_S < self.run_s < np.inf:
            raise BadKnob("training", "run_s", self.run_s, f"more than the {WARM_UP_S:g} s that are not counted")
        if not self.processing_ms or not all(0.0 < ms < np.inf for ms in self.processing_ms):
            raise BadKnob("training", "processing_ms", self.processing_ms, "one time or more, each above zero")
        slowest = max(self.processing_ms)
        least_ms = self.hardware.network_ms + float(self.hardware.service_ms(np.array([slowest]))[0])
        if not least_ms < self.bound_ms < np.inf:
            raise BadKnob("training", "bound_ms", self.bound_ms, f"more than {least_ms:.3g}: a single message of "
                          f"{slowest:g} ms takes so long on '{self.hardware.name}'")  # fmt: skip

    @property
    def random(self) -> int:
        """Random sets of all sizes."""
        return self.most * (self.configurations + self.tests)

    @property
    def highest(self) -> Ints:
        """The highest rate for each processing time."""
        return highest_rates(self.hardware, self.bound_ms, self.processing_ms)

    def sizes_for(self, name: str) -> Ints:
        """Topics of each set that a predictor will be fitted on. Of packed sets, which only ``trim`` is fitted on, the
        number is not known before; these are the fewest."""
        random = np.repeat(np.arange(1, self.most + 1), self.configurations)
        packed = self.requests * -(-REQUEST // self.most) if name == Trim.name else 0
        return np.concatenate([random, np.full(packed, self.most)])

    @property
    def provenance(self) -> dict[str, Any]:
        return {
            "source": SIMULATED, "seed": self.seed, "configurations": self.configurations, "tests": self.tests,
            "most": self.most, "requests": self.requests, "processing_ms": list(self.processing_ms),
            "bound_ms": self.bound_ms,
        }  # fmt: skip


class Part(InputPartition):
    """Random sets of one task, of all sizes in turn; or requests of one task."""

    def __init__(self, packed: bool, low: int, high: int) -> None:
        self.packed = packed
        self.low = low
        self.high = high


class SimulatedRuns(DataSource):
    """Spark's data source "simulated": a ``RUNS`` row for each topic of each set of a plan."""

    @classmethod
    def name(cls) -> str:
        return "simulated"

    def schema(self) -> str:
        return RUNS

    def reader(self, schema: Any) -> RunsReader:
        return RunsReader(Plan.from_json(self.options["plan"]))


class RunsReader(DataSourceReader):
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def partitions(self) -> list[Part]:
        """Random sets, then requests whose topics are packed."""
        plan = self.plan
        return [
            Part(packed, low, high)
            for packed, total in ((False, plan.random), (True, plan.requests))
            for low, high in itertools.pairwise([total * part // PARTS for part in range(PARTS + 1)])
            if low < high
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        drawn = _packed if partition.packed else _random
        waiting: list[Drawn] = []
        for each in drawn(self.plan, self.plan.highest, range(partition.low, partition.high)):
            waiting.append(each)
            if len(waiting) == BATCH:
                yield _simulated(self.plan, waiting)
                waiting = []
        if waiting:
            yield _simulated(self.plan, waiting)


@dataclass(frozen=True, slots=True)
class Drawn:
    """One set, before it is simulated."""

    set: int
    number: int  # of the set among those of its size, or of the request it is part of
    seed: tuple[int, ...]
    packed: bool
    rate: Floats
    processing_ms: Floats


def _random(plan: Plan, highest: Ints, sets: range) -> Iterator[Drawn]:
    """Set s has the size ``s % most + 1`` and the number ``s // most`` among the sets of that size."""
    for row in sets:
        size, number = row % plan.most + 1, row // plan.most
        rate, ms = random_set(highest, size, plan.seed, number, plan.processing_ms)
        yield Drawn(row, number, (plan.seed, size, number), False, rate, ms)


def _packed(plan: Plan, highest: Ints, requests: range) -> Iterator[Drawn]:
    model = Queueing(plan.hardware)
    for request in requests:
        packed = packed_request(model, highest, plan.most, plan.seed, request, plan.bound_ms, plan.processing_ms)
        for place, (rate, ms) in enumerate(packed):
            row = plan.random + request * REQUEST + place
            yield Drawn(row, request, (plan.seed, 0, row), True, rate, ms)


def _simulated(plan: Plan, sets: list[Drawn]) -> pa.RecordBatch:
    """A ``RUNS`` row for each topic of each set."""
    assert QUANTILES == (0.50, 0.90, 0.99)
    runs = [
        simulate(plan.hardware, Hosted.of(each.rate, each.processing_ms), seed=each.seed, duration_s=plan.run_s)
        for each in sets
    ]
    sizes = np.array([len(each.rate) for each in sets])
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)
    columns: dict[str, Any] = {
        name: np.repeat(np.array([getattr(each, name) for each in sets], kind), sizes)
        for name, kind in (("set", np.int64), ("number", np.int32), ("packed", np.bool_))
    }
    columns["topic"] = (np.arange(len(first)) - first).astype(np.int32)
    for name in ("rate", "processing_ms"):
        columns[name] = np.concatenate([getattr(each, name) for each in sets])
    columns["messages"] = np.concatenate([run.messages for run in runs])
    quantiles = np.concatenate([run.quantiles_ms for run in runs]).T
    columns |= dict(zip(("p50_ms", "p90_ms", "p99_ms"), quantiles, strict=True))
    columns["cpu"] = np.repeat([run.cpu for run in runs], sizes)
    return pa.RecordBatch.from_pydict({name: pa.array(np.ascontiguousarray(each)) for name, each in columns.items()})


def with_features(runs: DataFrame) -> DataFrame:
    """Add the features of Khare et al. (SEC'18, IV-D): the topic's load, and the sums over the other topics."""
    same_set = Window.partitionBy("set")
    loads = runs.withColumn("load_ms", F.col("processing_ms") * F.col("rate"))
    sums = {others: F.sum(own).over(same_set) - F.col(own) for own, others in BACKGROUND.items()}
    return loads.withColumns(sums)


@dataclass(frozen=True, slots=True)
class Simulated:
    """The datasets of a plan."""

    train: Samples  # random sets
    test: Samples  # random sets that no model is fitted on
    packed: Samples | None  # sets as an optimiser chooses them; None without requests


def simulate_samples(
    spark: SparkSession, plan: Plan, folder: Path, progressed: Callable[[int, int], None]
) -> Simulated:  # fmt: skip
    """Simulate, and write the datasets ``train``, ``test`` and ``packed`` with their provenance to a new folder."""
    spark.dataSource.register(SimulatedRuns)
    runs = spark.read.format(SimulatedRuns.name()).option("plan", plan.as_json()).load()
    kept = runs.transform(with_features).persist()
    random, early = ~F.col("packed"), F.col("number") < plan.configurations
    parts = {TRAIN: random & early, TEST: random & ~early} | ({PACKED: F.col("packed")} if plan.requests else {})
    try:
        with _Progress(spark, progressed):
            for name, chosen in parts.items():
                kept.where(chosen).orderBy("set", "topic").coalesce(1).write.parquet(str(folder / name))
                write_provenance(folder / name, plan.hardware, plan.run_s, plan.provenance | {"part": name})
    except PySparkException as error:
        raise BadInput(f"the simulation on Spark failed: {str(error).splitlines()[0]}") from error
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror or error}") from None
    finally:
        kept.unpersist()
    found = {name: Samples.read(folder / name) for name in parts}
    return Simulated(found[TRAIN], found[TEST], found.get(PACKED))


def refuse_other_samples(folder: Path) -> None:
    """Refuse a folder that holds anything but simulated datasets: those may be replaced, measured ones not."""
    if not folder.exists():
        return
    try:
        names = {each.name for each in folder.iterdir()}
        own = names <= {TRAIN, TEST, PACKED} and all(
            read_provenance(folder / name)["provenance"].get("source") == SIMULATED for name in names
        )
    except (BadInput, OSError, AttributeError):
        own = False
    if not own:
        raise BadInput(f"{folder} holds something else than samples that trimtab train has simulated, and would be "
                       "replaced: choose another --out")  # fmt: skip


class _Progress:
    """Reports finished tasks of the simulation while a Spark action runs in this thread."""

    def __init__(self, spark: SparkSession, progressed: Callable[[int, int], None]) -> None:
        self.tracker = spark.sparkContext.statusTracker()
        self.progressed = progressed
        self.over = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        most = 0
        while not self.over.wait(POLL_S):
            for stage in self.tracker.getActiveStageIds():
                info = self.tracker.getStageInfo(stage)
                if (info is not None and info.numTasks >= most > 0) or (info is not None and most == 0):
                    most = max(most, info.numTasks)
                    self.progressed(info.numCompletedTasks, info.numTasks)

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
