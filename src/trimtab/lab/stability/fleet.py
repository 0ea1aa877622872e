"""A fleet in virtual time: rates change, brokers die, moves take a second, and a balancer looks at it now and then."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from trimtab.lab.stability.case import PER_CORE
from trimtab.model.judgement import Load
from trimtab.observe.average import Averages

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.lab.stability.case import Case
    from trimtab.model.workload import Floats, Rows

    Flags = NDArray[np.bool_]

AVERAGE_S: Final = 20.0  # of the moving average of rates, as over a live fleet
MEASURE_S: Final = 5  # between measurements, too


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What a balancer is told."""

    second: int
    at: int  # when it was measured
    rate: Floats  # (K,) moving averages, with noise
    unsure: float  # share of them of which it is not known how often it comes
    load: Floats  # (B,) of brokers, as they say themselves
    messages: Floats  # (B,) messages/s, too
    home: Rows  # (keys,) now
    alive: Flags  # (B,) now


class Balancer(Protocol):
    """Looks every ``period_s``; is asked every second what to move."""

    name: str
    period_s: int

    def look(self, seen: Seen) -> None: ...

    def orders(self, second: int, home: Rows, alive: Flags) -> list[tuple[int, int]]:
        """Keys to move this second, and where to. Those of a dead broker must be among them."""
        ...

    def done(self, second: int, moved: list[tuple[int, int]], failed: list[tuple[int, int]]) -> None: ...


@dataclass(slots=True)
class Trace:
    """What happened, second by second."""

    spread: list[float] = field(default_factory=list)  # of the true loads of brokers that are alive
    highest: list[float] = field(default_factory=list)
    fullest: list[float] = field(default_factory=list)  # of cores or messages, as a share of what is allowed
    moves: list[int] = field(default_factory=list)  # of keys whose broker was alive
    failed: int = 0
    rehomed: int = 0  # keys whose broker was not
    returned: int = 0  # keys that went back to where they had left from, its broker alive all the time
    homeless_s: int = 0  # keys x seconds
    worst_homeless_s: int = 0  # of one key


def run(case: Case, balancer: Balancer, seed: int) -> Trace:
    rng = np.random.default_rng((seed, 77))
    trace, home = Trace(), case.home.copy()
    alive = np.ones(case.brokers, bool)
    for event in case.events:
        if event.action == "joins":
            alive[event.broker] = False
    averages, came = Averages(AVERAGE_S, len(case.rate)), np.zeros((0, len(case.rate)))
    kept: deque[tuple[int, Floats, float, Floats, Floats]] = deque(maxlen=case.lag_s + 1)
    left: dict[int, set[int]] = {}  # client -> brokers it moved away from
    waiting = np.zeros(len(home), np.int64)
    for second in range(case.seconds):
        for event in case.events:
            if event.at == second:
                alive[event.broker] = event.action != "dies"
                if event.action == "dies":  # to come back is no running in circles then
                    left = {client: places - {event.broker} for client, places in left.items()}
        rate = case.rates(second)
        came = np.vstack([came, rate])
        if second % MEASURE_S == 0:
            for part in np.array_split(came, 2):
                averages.add(part.sum(axis=0)[:, None], float(len(part)))
            came = came[:0]
        load = _load(case, rate, home, alive)
        messages = _messages(case, rate, home, alive)
        kept.append((second, averages.mean[:, 0].copy(), averages.unsure(), load, messages))
        if second % balancer.period_s == 0:
            at, known, unsure, loads, counts = kept[0]
            seen = known * _noise(rng, case.noise, len(known))
            loads = loads * _noise(rng, case.noise / 3, len(loads))
            balancer.look(Seen(second, at, seen, unsure, loads, counts, home.copy(), alive))
        _carry_out(case, balancer, second, home, alive, trace, left)
        homeless = ~alive[home]
        waiting = np.where(homeless, waiting + 1, 0)
        trace.homeless_s += int(homeless.sum())
        trace.worst_homeless_s = max(trace.worst_homeless_s, int(waiting.max(initial=0)))
        then = _load(case, rate, home, alive)
        level = Load(then[alive], _speed(case, alive))
        trace.spread.append(level.cov)
        trace.fullest.append(fullest(case, _messages(case, rate, home, alive)))
        trace.highest.append(level.level)
    return trace


def _carry_out(
    case: Case, balancer: Balancer, second: int, home: Rows, alive: Flags, trace: Trace, left: dict[int, set[int]]
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
            trace.returned += target in left.get(client, ())
            left.setdefault(client, set()).add(source)
        else:
            trace.rehomed += 1
    trace.moves.append(count)
    trace.failed += len(failed)
    balancer.done(second, moved, failed)


def _noise(rng: np.random.Generator, share: float, size: int) -> Floats:
    return np.maximum(0.0, 1.0 + share * rng.standard_normal(size)) if share else np.ones(size)


def _load(case: Case, rate: Floats, home: Rows, alive: Flags) -> Floats:
    """Of every broker, with what no client causes."""
    return case.load(rate, home, alive) + (case.besides if case.besides is not None else 0.0)


def _messages(case: Case, rate: Floats, home: Rows, alive: Flags) -> Floats:
    """In and out of every broker, messages/s."""
    if case.size is None:
        return np.zeros(case.brokers)
    return case.load(rate, home, alive, in_messages=True)


def fullest(case: Case, messages: Floats) -> float:
    """What the fullest broker uses beside bandwidth, as a share of what it is allowed to."""
    shares = [np.zeros(1)]
    if case.cores is not None:
        shares.append(messages / PER_CORE / case.cores / case.settings.overload)
    if case.settings.messages is not None:
        shares.append(messages / case.settings.messages)
    return float(max(each.max() for each in shares))


def _speed(case: Case, alive: Flags) -> Floats:
    if case.bandwidth is None:
        return np.ones(int(alive.sum()))
    chosen = case.bandwidth[alive]
    return np.asarray(chosen / chosen.mean())
