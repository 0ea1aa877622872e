"""Resources of brokers: what is used now, what would be used with another placement, and how to relieve a full broker.

A broker is full when it uses 85 % of any hardware it has, or carries more messages than it should (Gupta, SEC'21,
3.4.2). Data is computed from the placement. Cores of processors move with the keys they belong to. Everything else goes
with messages: the share of cores or memory that a key takes is its share of its broker's messages (ibid., 3.4.3), and a
relief moves the keys with most messages first, until the broker has room again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.control.plan import LOAD
from trimtab.place.client.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Collection

    from trimtab.control.view import View
    from trimtab.model.key import Key
    from trimtab.model.workload import Floats, Rows

ROOM: Final = 0.9  # share of what is allowed that a relieved broker may use: the next message does not fill it again
DATA: Final = "bandwidth"
MESSAGES: Final = "message rate"
NOTHING: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One resource of all brokers."""

    name: str
    use: Floats  # (B,) now
    limit: Floats  # (B,)
    fixed: Floats  # (B,) part of the use that stays, whichever keys move
    own: Floats  # (keys,) part of the use that moves with each key as it is; the rest goes by data or messages
    allowed: float  # share above which a broker is full
    room: float = 0.0  # share at which it is not full any more

    @property
    def by_data(self) -> bool:
        """Whether the use goes with bytes; else with messages."""
        return self.name in (DATA, LOAD)

    def share(self, use: Floats | None = None) -> Floats:
        return np.asarray((self.use if use is None else use) / np.maximum(self.limit, NOTHING))


def resources(view: View, overload: float, messages: float | None) -> list[Resource]:
    """Every resource whose limit is known of all brokers. ``messages`` is the message rate that is too much,
    ``overload`` the share of anything else."""
    brokers, none = view.problem.workload.brokers, np.zeros(len(view.brokers))
    free = np.zeros(len(view.keys))
    reported = [view.usage.get(name) for name in view.brokers]

    def of(name: str) -> Floats:
        return np.array([float(getattr(each, name)) if each else 0.0 for each in reported])

    found: list[tuple[str, Floats, Floats, Floats, Floats]] = []
    if np.isfinite(view.problem.bandwidth).all():
        found.append((DATA, view.load().per_broker, view.problem.bandwidth, view.own, free))
    if brokers.cores is not None:
        processing, own = of("processing"), view.processing
        known = _summed(own, view.current, len(none))
        # Measured cores are shared among the keys that are known to use them; what belongs to no key stays.
        scale = np.divide(processing, known, out=np.ones_like(known), where=known > processing)
        here = np.where(view.current >= 0, scale[view.current], 1.0) if len(own) else own
        fixed = np.maximum(processing - known, 0.0)
        found.append(("cores", of("cores") + processing, brokers.cores, fixed, own * here))
    if brokers.memory is not None:
        found.append(("memory", of("memory"), brokers.memory, none, free))
    made = [Resource(*each, allowed=overload, room=ROOM * overload) for each in found]
    if messages is not None:
        limit = np.full(len(reported), messages)
        made.append(Resource(MESSAGES, of("messages"), limit, none, free, allowed=1.0, room=ROOM))
    return made


def evenness(view: View, limits: list[Resource], tolerance: float, placement: Rows | None = None) -> Resource:
    """Load as if a broker had no more than the mean, for its strength; the mean of those that can take any key."""
    load, speed = view.load(placement).per_broker, view.problem.speed
    able = np.array([each.share() < each.room for each in limits]).all(axis=0) & (speed > 0.0)
    even = load[able].sum() * speed / max(float(speed[able].sum()), NOTHING)
    mean = np.where(able, even, np.minimum(load, even))
    free = np.zeros(len(view.keys))
    return Resource(LOAD, load, mean, np.minimum(view.own, load), free, allowed=1.0 + tolerance, room=1.0 + tolerance)


def all_that_binds(view: View, overload: float, messages: float | None) -> list[Resource]:
    """What a plan may be about: limits, and evenness."""
    return [*resources(view, overload, messages), evenness(view, [], 0.0)]


def forecast(view: View, resource: Resource, placement: Rows) -> Floats:
    """Forecast a resource's use at every broker with this placement: less in proportion at brokers that give, more at
    brokers that take by what it costs on average, and what keys take along as it is."""
    now, then = (_carried(view, resource, each) for each in (view.current, placement))
    own_now, own_then = (_summed(resource.own, each, len(now)) for each in (view.current, placement))
    goes = np.maximum(resource.use - resource.fixed - own_now, 0.0)
    rest = resource.use - goes - own_now
    left = np.divide(then, now, out=np.ones_like(now), where=now > NOTHING)
    mean = float(goes.sum() / max(float(now.sum()), NOTHING))
    return np.asarray(rest + own_then + np.where(then <= now, goes * left, goes + mean * (then - now)))


def as_if(view: View, limits: list[Resource], placement: Rows) -> list[Resource]:
    """The same resources with the use that is forecast for this placement."""
    return [replace(each, use=forecast(view, each, placement)) for each in limits]


def _carried(view: View, resource: Resource, placement: Rows) -> Floats:
    """(B,) data or messages, whichever the use goes with."""
    return view.load(placement).per_broker - view.own if resource.by_data else view.messages(placement).per_broker


def _summed(amount: Floats, placement: Rows, brokers: int) -> Floats:
    placed = placement >= 0
    return np.bincount(placement[placed], weights=amount[placed], minlength=brokers).astype(np.float64)


def too_full(view: View, limits: list[Resource], placement: Rows) -> list[str]:
    """Brokers that this placement would fill more than is allowed, and more than any is filled now."""
    found: dict[str, None] = {}
    for resource in limits:
        allowed = max(resource.allowed, float(resource.share().max(initial=0.0))) * (1.0 + NOTHING)
        for row in np.flatnonzero(resource.share(forecast(view, resource, placement)) > allowed).tolist():
            found[view.brokers[row]] = None
    return list(found)


def relief(
    view: View, limits: list[Resource], name: str, frozen: Collection[Key], most: int, begin: Rows | None = None
) -> tuple[Rows, Rows]:
    """A placement with which no broker is full of a resource, as far as that can be; and the keys that move, in order.
    ``limits`` are of the placement that it begins with, the present one if nothing is said.

    Off the fullest broker, the key with most of it first, to the broker with most room and enough of everything else
    (Gupta, SEC'21, Algorithm 1, lines 18-21, and 3.4.3). O(keys of full brokers x brokers).
    """
    at = next(row for row, each in enumerate(limits) if each.name == name)
    use, limit = (np.array([getattr(each, column) for each in limits]) for column in ("use", "limit"))  # (R, B)
    limit = np.maximum(limit, NOTHING)
    room = np.array([each.room for each in limits])[:, None]
    own = np.array([each.own for each in limits])  # (R, N)
    weights = {True: Instance.of(view.problem).weight, False: Instance.of(view.problem_in_messages).weight}
    weight = np.array([weights[each.by_data] for each in limits])  # (R, N)
    home, held = (view.current if begin is None else begin).copy(), set(frozen)
    brokers = len(view.brokers)
    goes = use - np.array([each.fixed for each in limits]) - np.array([_summed(each, home, brokers) for each in own])
    goes = np.maximum(goes, 0.0)
    there = np.array([_summed(each, home, brokers) for each in weight])
    cost = goes / np.maximum(there, NOTHING)  # at the broker that gives
    mean = goes.sum(axis=1) / np.maximum(there.sum(axis=1), NOTHING)  # at the one that takes
    moved: list[int] = []
    for source in np.argsort(-limits[at].share(), kind="stable").tolist():
        if limits[at].share()[source] <= limits[at].allowed:
            break
        here = np.flatnonzero(home == source)
        heaviest = mean[at] * weight[at, here] + own[at, here]
        for key in here[np.argsort(-heaviest, kind="stable")].tolist():
            if use[at, source] <= limits[at].room * limit[at, source] or len(moved) >= most:
                break
            takes = mean * weight[:, key] + own[:, key]
            then = (use + takes[:, None]) / limit
            fits = (then <= room).all(axis=0)
            fits[source] = False
            if not fits.any() or not takes[at] or view.keys[key] in held:
                continue
            target = int(np.argmin(np.where(fits, then[at], np.inf)))
            use[:, source] -= cost[:, source] * weight[:, key] + own[:, key]
            use[:, target] += takes
            home[key] = target
            moved.append(key)
    return home, np.array(moved, np.int32)
