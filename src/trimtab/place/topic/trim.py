"""``topic/trim``: by processing (``by_processing``), by network latency (``by_network``), or by both (``by_both``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.model.margin import MARGIN, MARGIN_MS
from trimtab.model.network import Network
from trimtab.model.placement import Placement
from trimtab.place.knobs import check, knob
from trimtab.place.stop import EFFORT, NO_LIMIT
from trimtab.place.topic import by_both, by_network, by_processing
from trimtab.place.topic.near import FILL

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.place.stop import Stop
    from trimtab.place.topic.probe import Probe
    from trimtab.predict.model import LatencyModel

BY: Final = ("columns", "processing", "network", "both")


@dataclass(frozen=True, slots=True)
class Trim:
    """Few brokers by predicted processing, or brokers near the clients, or both in one promise (trimtab's own).

    By processing: the fewest brokers on which the p90 of processing keeps every bound at rates that are higher by
    ``growth``: first fit decreasing, balancing by exchanges between pairs, and column generation over patterns of
    topics, with a margin on use. By network: promises first, then nearness, then few moves. Each topic goes to the
    broker with the fewest violating pairs, then the least worst case, that has room; a topic moves only for an
    improvement above the margin. By both: a topic's bound at a broker is its bound minus the network latency there, and
    the topics of a broker are those whose p90 of processing keeps these bounds together. By default, the columns of the
    workload decide: processing times, network latencies, or both.
    """

    k: int = knob(6, "most topics with processing on a broker", least=1)
    by: str = knob("columns", "processing, network, both, or what the workload's columns allow", choices=BY)
    use: float = knob(1.0, "share of time in which a topic's worker may be busy", least=0.01, most=1.0)
    growth: float = knob(0.02, "share by which rates may grow before a limit is reached", least=0.0, most=10.0)
    coverage: float = knob(0.8, "of the latency interval whose upper end must be in the bound", least=0.01, most=0.999)
    margin: float = knob(
        MARGIN, "network: least gain of a move, as a share of the present latency", least=0.0, most=1.0
    )
    margin_ms: float = knob(MARGIN_MS, "network: least gain of a move in ms", least=0.0)
    fill: float = knob(FILL, "network: share of a broker's bandwidth and cores that may be in use", least=0.0, most=1.0)
    messages: float | None = knob(
        None, "network: most messages/s of a broker, in and out together", kind=float, least=0.0
    )
    seed: int = knob(0, "seed of the random draws", least=0)
    effort: float = knob(1.0, "work of the search; the answer depends on it and the seed", least=0.0, most=EFFORT)
    model: LatencyModel | None = None  # default: the queueing model of the problem's hardware
    probe: Probe | None = None  # measures candidates before a topic is placed; None: estimates decide
    stop: Stop = NO_LIMIT

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check(self)

    def place(self, problem: Problem) -> Placement:
        mode = self.mode(problem)
        if mode == "processing":
            return by_processing.place(problem, self)
        return by_network.place(problem, self) if mode == "network" else by_both.place(problem, self)

    def mode(self, problem: Problem) -> str:
        """Processing, network or both."""
        if self.by != "columns":
            return self.by
        topics = problem.workload.topics
        if Network.of(problem.workload) is None:
            return "processing"
        return "network" if topics.processing_ms is None or topics.latency_ms is None else "both"

    def warm_up(self, problem: Problem) -> None:
        """Compile the kernels that are reached only with a current placement."""
        placed = Placement("topic", np.zeros(problem.units, np.int32))
        self.place(replace(problem, current=placed))
