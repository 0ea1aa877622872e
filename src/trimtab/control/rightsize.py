"""How many brokers the expected traffic needs: every latency bound kept by prediction, and no limit exceeded.

The brokers that are kept are those with most load. What the others have is packed onto them; if it does not fit, all
is packed anew (best fit decreasing, as thrift does). If all brokers are too few, brokers of mean strength are added. A
lower bound says how many brokers any placement needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.control.goals.thrift import packed, used
from trimtab.control.hosting import Hosting, latency_model
from trimtab.control.resources import Costs, as_if, resources
from trimtab.control.resources import forecast as use_then
from trimtab.control.view import View
from trimtab.errors import BadInput
from trimtab.model.placement import UNPLACED
from trimtab.predict.forecast import NOW, Forecast, forecast

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trimtab.control.resources import Resource
    from trimtab.control.settings import Settings
    from trimtab.model.workload import Floats, Rows

MOST_ADDED: Final = 64  # brokers
FULL: Final = 1.0  # strain up to which brokers are filled: the expected traffic has a margin already
SPEEDS: Final = 64  # topics in processing at once, up to which the throughput of hardware is looked at
WINDOWS: Final = 12  # windows of the time that is forecast


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """Rates of topics in windows of equal length, the newest last."""

    topics: tuple[str, ...]
    rates: Floats  # (T, n) messages/s, NaN where the fleet was not measured
    window_s: float


@dataclass(frozen=True, slots=True)
class Expected:
    """The expected traffic of one topic."""

    now: float  # messages/s
    peak: float
    forecast: Forecast

    @property
    def growth(self) -> float:
        return self.peak / self.now if self.now > 0.0 else 1.0


def expected(now: Mapping[str, float], history: History | None, season_s: float) -> dict[str, Expected]:
    """The highest rate of every topic in the next ``WINDOWS`` windows, never below the present one. A topic without
    history gets the margin that is used while there is nothing to learn a margin from."""
    rows = {} if history is None else {name: row for row, name in enumerate(history.topics)}
    found = {}
    for name, rate in now.items():
        past = np.zeros(0) if history is None or name not in rows else history.rates[rows[name]]
        season = WINDOWS if history is None else max(WINDOWS, round(season_s / history.window_s))
        ahead = forecast(past, WINDOWS, season)
        known = past[np.isfinite(past)][-NOW:]
        level = float(known.mean()) if len(known) and known.any() else rate
        found[name] = Expected(rate, max(rate, ahead.growth * level), ahead)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Need:
    """The brokers that are needed, and a placement on them."""

    view: View  # with the expected traffic, and with added brokers
    hosting: Hosting
    kept: tuple[str, ...]  # brokers that are needed and exist
    added: tuple[str, ...]  # brokers that are needed and do not exist
    idle: tuple[str, ...]  # brokers that exist and are not needed
    in_use: int  # brokers that have keys now
    bound: int  # brokers that any placement needs
    binding: str  # what the bound comes from
    placement: Rows  # rows of the view's brokers
    too_few: str  # why one broker less is not enough; empty if the bound says so
    hopeless: tuple[str, ...]  # topics that miss their bound on any broker
    alone: int = 0  # brokers among the needed ones that have one of these topics each, and nothing else

    @property
    def needed(self) -> int:
        return len(self.kept) + len(self.added)


def with_growth(view: View, growth: Mapping[str, float]) -> View:
    """The view with the expected traffic: rates of topics, and the use of brokers in proportion to their traffic."""
    measured = view.snapshot.workload
    factor = np.array([growth.get(name, 1.0) for name in measured.topics.ids])
    out = measured.topics.out_rate
    topics = replace(
        measured.topics, rate=measured.topics.rate * factor, **({} if out is None else {"out_rate": out * factor})
    )
    workload = replace(measured, topics=topics)
    later = View.of(replace(view.snapshot, workload=workload, growth=None), view.routing, list(view.brokers))
    rises = np.maximum(later.load().per_broker / np.maximum(view.load().per_broker, 1e-9), 0.0)
    usage = {
        name: replace(use, cores=use.cores * rise, processing=use.processing * rise, messages=use.messages * rise)
        for name, rise in zip(view.brokers, rises.tolist(), strict=True)
        if (use := view.usage.get(name)) is not None
    }
    return View.of(replace(later.snapshot, usage=usage), view.routing, list(view.brokers))


def needed(
    view: View, settings: Settings, *, closed: Sequence[str] = (), names: Sequence[str] = (), apart: bool = False
) -> Need:  # fmt: skip
    """The fewest brokers for the view's traffic. ``closed`` brokers are not counted on; ``names`` are for added ones.

    Topics that miss their bound on any broker are left where they are, or get a broker of their own each (``apart``).

    O(brokers x keys x brokers) at most, with a prediction of latency for each pair of key and broker that is tried.
    """
    limits, hosting = _parts(view, settings)
    if not limits and not hosting.promised:
        raise BadInput("nothing is known about how much a broker can carry, so all traffic would fit on one: give "
                       "topics with a processor a latency bound (trimtab topic set NAME --latency 200ms) or brokers a "
                       "[broker] bandwidth")  # fmt: skip
    order = _order(view, closed)
    hopeless = _hopeless(hosting)
    kept_down = [key for key in range(len(view.keys)) if hosting.taken(key)[sorted(hopeless)].any()]
    least, binding = _bound(hosting, order, hopeless)
    alone = len(kept_down) if apart else 0
    least = alone + (least if len(kept_down) < len(view.keys) else 0 if apart else least)
    stuck = ""
    for count in range(max(least, 1), max(len(order), least) + MOST_ADDED + 1):
        added = _new_names(view, names, count - len(order))
        wide, found = _attempt(view, settings, (*order[:count], *added), kept_down, alone)
        if isinstance(found, str):
            stuck = found
            continue
        return Need(
            wide, _parts(wide, settings)[1], tuple(order[:count]), added, tuple(order[count:]),
            len(used(view.current)), least, binding, found, stuck if count > least else "",
            tuple(hosting.names[topic] for topic in sorted(hopeless)), alone,
        )  # fmt: skip
    raise BadInput(f"even {max(len(order), least) + MOST_ADDED} brokers are too few: {stuck}")


def _parts(view: View, settings: Settings) -> tuple[list[Resource], Hosting]:
    hosting = Hosting.of(view, latency_model(settings.model), settings.headroom)
    return resources(view, settings.overload, settings.messages), hosting


def _rows(view: View, names: Sequence[str]) -> list[int]:
    return [int(row) for row in view.brokers.find(list(names))]


def _order(view: View, closed: Sequence[str]) -> list[str]:
    """Brokers in the order in which they are kept: those with most load, then those without keys."""
    load, busy = view.load().levels, used(view.current)
    rows = sorted(range(len(view.brokers)), key=lambda row: (row not in busy, -load[row], row))
    return [view.brokers[row] for row in rows if view.brokers[row] not in closed]


def _new_names(view: View, names: Sequence[str], count: int) -> tuple[str, ...]:
    free = [name for name in names if name not in view.brokers]
    number = 1
    while len(free) < count:
        if (name := f"b{number}") not in view.brokers and name not in free:
            free.append(name)
        number += 1
    return tuple(free[: max(count, 0)])


def _hopeless(hosting: Hosting) -> set[int]:
    """Topics with a bound that no broker keeps, even without any other topic."""
    alone = _alone(hosting)
    best = np.full(len(alone), np.inf)
    for broker in _kinds(hosting):
        best = np.minimum(best, hosting.strain(alone, [broker] * len(alone)))
    return set(np.flatnonzero(best > FULL).tolist())


def _alone(hosting: Hosting) -> Floats:
    """(T, T) a row for each topic: its rate, and no other topic."""
    total = hosting.rate.sum(axis=0)
    return np.asarray(np.eye(len(total)) * total)


def _kinds(hosting: Hosting) -> list[int]:
    """The first broker of each kind of hardware."""
    return [int(row) for row in np.unique(hosting.kind, return_index=True)[1]]


def alone_at_best(hosting: Hosting, topic: int) -> tuple[float, float]:
    """Least p90 in ms and least busy share of a topic that is alone at a broker."""
    kinds = _kinds(hosting)
    p90, use = hosting.predicted(np.tile(_alone(hosting)[topic], (len(kinds), 1)), kinds)
    return float(p90[:, topic].min()), float(use[:, topic].min())


def _bound(hosting: Hosting, order: list[str], hopeless: set[int]) -> tuple[int, str]:
    """Brokers that any placement needs: enough for the CPU time of all topics with a bound, at the highest throughput
    that the hardware reaches with any number of topics."""
    bounded = ~np.isnan(hosting.bound_ms)
    bounded[sorted(hopeless)] = False
    if not bounded.any() or not order:
        return 1, ""
    share = []  # of the work that each broker can do
    for row in _rows(hosting.view, order):
        hardware = hosting.models[hosting.kind[row]].hardware
        work = float((hosting.rate.sum(axis=0) * hardware.service_ms(hosting.processing_ms))[bounded].sum()) / 1000.0
        share.append(float((np.arange(SPEEDS + 1) * hardware.speeds(SPEEDS)).max()) / max(work, 1e-9))
    return _fewest(1.0, np.array(share)), "the CPU time of topics with a bound"


def _fewest(amount: float, capacity: Floats) -> int:
    """How many of the largest capacities it takes; all of them and more of the mean one if all are too few."""
    summed = np.cumsum(np.sort(capacity)[::-1])
    enough = np.flatnonzero(summed >= amount * (1 - 1e-9))
    if len(enough):
        return int(enough[0]) + 1
    return len(capacity) + math.ceil((amount - float(summed[-1])) / max(float(capacity.mean()), 1e-9) - 1e-9)


def _attempt(
    view: View, settings: Settings, brokers: tuple[str, ...], kept_down: list[int], alone: int
) -> tuple[View, Rows | str]:
    """A placement on these brokers, in rows of the returned view, or the reason why there is none.

    The last ``alone`` brokers get one of the keys ``kept_down`` each, and no other key.
    """
    added = [name for name in brokers if name not in view.brokers]
    wide = View.of(view.snapshot, view.routing, [*view.brokers, *added]) if added else view
    limits, hosting = _parts(wide, settings)
    rows = _rows(wide, brokers)
    targets, own = rows[: len(rows) - alone], rows[len(rows) - alone :]
    stay = np.where(np.isin(wide.current, targets), wide.current, UNPLACED).astype(np.int32)
    anew = np.full(len(stay), UNPLACED, np.int32)
    anew[kept_down] = stay[kept_down]
    if alone:
        stay[kept_down] = anew[kept_down] = own
    reason = ""
    for begin in (stay, anew):
        found = _filled(wide, hosting, limits, begin, targets)
        if not isinstance(found, str):
            return wide, found
        reason = found
    return wide, reason


def _filled(view: View, hosting: Hosting, limits: list[Resource], begin: Rows, targets: list[int]) -> Rows | str:
    """All keys without a broker at the targets; or why they do not fit."""
    costs = Costs.of(view, limits, view.current)
    if limits:
        costs = replace(costs, use=np.array([resource.use for resource in as_if(view, limits, begin)]))
    start = replace(hosting, rate=hosting.rates(begin))
    keys = np.flatnonzero(begin == UNPLACED).astype(np.int32)
    placement = packed(view, start, costs, keys, targets, begin=begin, full=FULL)
    if placement is None:
        return _why_not(view, hosting, limits, targets)
    over = [miss for miss in hosting.missed(hosting.rates(placement)) if miss.topic not in _hopeless(hosting)]
    for miss in over[:1]:
        return f"topic '{hosting.names[miss.topic]}' would miss its bound of {hosting.bound_ms[miss.topic]:,.0f} ms"
    for resource in limits:
        if (resource.share(use_then(view, resource, placement))[targets] > resource.allowed * (1 + 1e-9)).any():
            return f"a broker would be above {resource.allowed:.0%} of its {resource.name}"
    return placement


def _why_not(view: View, hosting: Hosting, limits: list[Resource], targets: list[int]) -> str:
    """The resource of which least is left, if everything were spread evenly over the targets."""
    shares = {
        f"{resource.name} ({float(resource.use.sum()) / float(resource.limit[targets].sum()):.0%} of what they have)":
        float(resource.use.sum()) / float(resource.limit[targets].sum()) / resource.allowed
        for resource in limits
    }  # fmt: skip
    if hosting.promised:
        total = hosting.rate.sum(axis=0)
        total[sorted(_hopeless(hosting))] = 0.0
        even = np.tile(total / len(targets), (len(targets), 1))
        strain = float(hosting.strain(even, targets).max(initial=0.0))
        shares[f"time to keep all latency bounds (spread evenly, the strain would be {strain:.2f})"] = strain
    scarce = max(shares, key=lambda name: shares[name])
    return f"{len(targets)} would have too little {scarce}"
