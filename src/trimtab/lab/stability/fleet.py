"""A fleet in virtual time: rates change, brokers die, moves take a second, and a balancer decides periodically."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from trimtab.control.hosting import Hosting, latency_model
from trimtab.lab.stability.case import PER_CORE
from trimtab.model.judgement import Load
from trimtab.observe.average import Averages
from trimtab.observe.snapshot import Snapshot

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.lab.stability.case import Case
    from trimtab.model.workload import Floats, Rows

    Flags = NDArray[np.bool_]

AVERAGE_S: Final = 20.0  # time constant of the moving averages of rates, as in a live fleet
MEASURE_S: Final = 5  # interval of measurements, as in a live fleet


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """The input of a balancer."""

    second: int
    at: int  # second of the measurement
    rate: Floats  # (K,) moving averages, with noise
    recent: Floats  # (K,) the same over the last seconds
    unsure: float  # share of the rates whose period is not known yet
    load: Floats  # (B,) loads that brokers report, bytes/s
    messages: Floats  # (B,) message rates that brokers report, messages/s
    home: Rows  # (keys,) now
    alive: Flags  # (B,) now


class Balancer(Protocol):
    """A balancer gets an observation every ``period_s``, and returns orders every second."""

    name: str
    period_s: int

    def look(self, observation: Observation) -> None: ...

    def orders(self, second: int, home: Rows, alive: Flags) -> list[tuple[int, int]]:
        """Keys to move this second, and their target brokers. All keys of dead brokers must be among them."""
        ...

    def done(self, second: int, moved: list[tuple[int, int]], failed: list[tuple[int, int]]) -> None: ...


@dataclass(slots=True)
class Trace:
    """The history of a run. Lists have an entry per second."""

    spread: list[float] = field(default_factory=list)  # spread of the true loads of living brokers
    highest: list[float] = field(default_factory=list)
    fullest: list[float] = field(default_factory=list)  # highest use of cores or messages, as a share of the limit
    moves: list[int] = field(default_factory=list)  # number of moved keys whose broker was alive
    used: list[int] = field(default_factory=list)  # number of brokers with keys
    missed: list[int] = field(default_factory=list)  # topics out of bound by the true rates; every ``MEASURE_S``
    failed: int = 0
    rehomed: int = 0  # number of moved keys whose broker was dead
    returned: int = 0  # keys moved back to a broker that they had left and that was alive all the time
    homeless_s: int = 0  # time without a broker, keys x seconds
    worst_homeless_s: int = 0  # longest time of one key without a broker


def run(case: Case, balancer: Balancer, seed: int) -> Trace:
    rng = np.random.default_rng((seed, 77))
    trace, home = Trace(), case.home.copy()
    alive = np.ones(case.brokers, bool)
    for event in case.events:
        if event.action == "joins":
            alive[event.broker] = False
    averages, rates = Averages(AVERAGE_S, len(case.rate)), np.zeros((0, len(case.rate)))
    measurements: deque[tuple[int, Floats, Floats, float, Floats, Floats]] = deque(maxlen=case.lag_s + 1)
    sources: dict[int, set[int]] = {}  # client -> brokers it moved away from
    waiting = np.zeros(len(home), np.int64)
    for second in range(case.seconds):
        for event in case.events:
            if event.at == second:
                alive[event.broker] = event.action != "dies"
                if event.action == "dies":  # a later return to this broker is no oscillation
                    sources = {client: places - {event.broker} for client, places in sources.items()}
        rate = case.rates(second)
        rates = np.vstack([rates, rate])
        if second % MEASURE_S == 0:
            for part in np.array_split(rates, 2):
                averages.add(part.sum(axis=0)[:, None], float(len(part)))
            rates = rates[:0]
        load = _load(case, rate, home, alive)
        messages = _messages(case, rate, home, alive)
        means, recent = averages.mean[:, 0].copy(), averages.recent.copy()
        measurements.append((second, means, recent, averages.unsure(), load, messages))
        if second % balancer.period_s == 0:
            at, means, recent, unsure, loads, counts = measurements[0]
            noise = _noise(rng, case.noise, len(means))
            loads = loads * _noise(rng, case.noise / 3, len(loads))
            seen = (means * noise, recent * noise)
            balancer.look(Observation(second, at, *seen, unsure, loads, counts, home.copy(), alive))
        _carry_out(case, balancer, second, home, alive, trace, sources)
        homeless = ~alive[home]
        waiting = np.where(homeless, waiting + 1, 0)
        trace.homeless_s += int(homeless.sum())
        trace.worst_homeless_s = max(trace.worst_homeless_s, int(waiting.max(initial=0)))
        after = Load(_load(case, rate, home, alive)[alive], _speed(case, alive))
        trace.spread.append(after.cov)
        trace.fullest.append(fullest(case, _messages(case, rate, home, alive)))
        trace.highest.append(after.level)
        trace.used.append(len(np.unique(home[alive[home]])))
        if second % MEASURE_S == 0 and case.latency_ms is not None:
            trace.missed.append(_missed(case, rate, home, alive))
    return trace


def _missed(case: Case, rate: Floats, home: Rows, alive: Flags) -> int:
    """Number of topics that miss their latency bound with these rates."""
    view = case.view(Snapshot(0.0, case.workload(rate)), home, alive)
    hosting = Hosting.of(view, latency_model(case.settings.model), 0.0)
    return len(hosting.missed(hosting.rate))


def _carry_out(
    case: Case, balancer: Balancer, second: int, home: Rows, alive: Flags, trace: Trace, sources: dict[int, set[int]]
) -> None:
    moved, failed, count = [], [], 0
    for client, target in balancer.orders(second, home, alive):
        source = int(home[client])
        if source == target:
            continue
        if not alive[target] or target in case.refuses:
            failed.append((client, target))
            continue
        home[client] = target
        moved.append((client, target))
        if alive[source]:
            count += 1
            trace.returned += target in sources.get(client, ())
            sources.setdefault(client, set()).add(source)
        else:
            trace.rehomed += 1
    trace.moves.append(count)
    trace.failed += len(failed)
    balancer.done(second, moved, failed)


def _noise(rng: np.random.Generator, share: float, size: int) -> Floats:
    return np.maximum(0.0, 1.0 + share * rng.standard_normal(size)) if share else np.ones(size)


def _load(case: Case, rate: Floats, home: Rows, alive: Flags) -> Floats:
    """Load of every broker, including the load that no client causes."""
    return case.load(rate, home, alive) + (case.other_load if case.other_load is not None else 0.0)


def _messages(case: Case, rate: Floats, home: Rows, alive: Flags) -> Floats:
    """Messages/s in and out of every broker; zeros without message sizes."""
    if case.size is None:
        return np.zeros(case.brokers)
    return case.load(rate, home, alive, in_messages=True)


def fullest(case: Case, messages: Floats) -> float:
    """The highest use of cores or messages of any broker, as a share of its limit."""
    shares = [np.zeros(1)]
    if case.cores is not None:
        shares.append(messages / PER_CORE / case.cores / case.settings.overload)
    if case.settings.messages is not None:
        shares.append(messages / case.settings.messages)
    return float(max(share.max() for share in shares))


def _speed(case: Case, alive: Flags) -> Floats:
    if case.bandwidth is None:
        return np.ones(int(alive.sum()))
    bandwidth = case.bandwidth[alive]
    return np.asarray(bandwidth / bandwidth.mean())
