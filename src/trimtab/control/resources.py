"""Resources of brokers: their present use, a forecast for another placement, and how to relieve a full broker.

A broker is full when it uses more than the allowed share of its hardware (85 %), or carries more messages than allowed
(Gupta, SEC'21, 3.4.2). Data is computed from the placement. Cores of processors move with the keys they belong to. All
other use is proportional to messages: a key's share of its broker's cores or memory is its share of the broker's
messages (ibid., 3.4.3). A relief moves the keys with most messages first, until the broker has room again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.fleet.protocol.plans import LOAD
from trimtab.place.client.instance import Instance

if TYPE_CHECKING:
    from collections.abc import Collection

    from trimtab.control.view import View
    from trimtab.model.key import Key
    from trimtab.model.workload import Floats, Rows

ROOM: Final = 0.9  # a relief goes down to this share of the allowed use, so that the broker is not full again at once
DATA: Final = "bandwidth"
MESSAGES: Final = "message rate"
NOTHING: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One resource of all brokers."""

    name: str
    use: Floats  # (B,) now
    limit: Floats  # (B,)
    fixed: Floats  # (B,) part of the use that belongs to no key and never moves
    own: Floats  # (keys,) part of the use that each key takes along unchanged; all other use follows data or messages
    allowed: float  # share above which a broker is full
    room: float = 0.0  # share down to which a full broker is relieved

    @property
    def by_data(self) -> bool:
        """Whether the use is proportional to bytes; otherwise it is proportional to messages."""
        return self.name in (DATA, LOAD)

    def share(self, use: Floats | None = None) -> Floats:
        return np.asarray((self.use if use is None else use) / np.maximum(self.limit, NOTHING))


def resources(view: View, overload: float, messages: float | None) -> list[Resource]:
    """Every resource whose limit is known for all brokers.

    A broker is full above ``messages`` messages/s, and above the share ``overload`` of any other resource.
    """
    brokers, none = view.problem.workload.brokers, np.zeros(len(view.brokers))
    free = np.zeros(len(view.keys))
    reported = [view.usage.get(name) for name in view.brokers]

    def of(name: str) -> Floats:
        return np.array([float(getattr(usage, name)) if usage else 0.0 for usage in reported])

    columns: list[tuple[str, Floats, Floats, Floats, Floats]] = []
    if np.isfinite(view.problem.bandwidth).all():
        columns.append((DATA, view.load().per_broker, view.problem.bandwidth, view.own, free))
    if brokers.cores is not None:
        speed = np.ones(len(reported)) if brokers.cpu_speed is None else brokers.cpu_speed
        processing, own = of("processing") * speed, view.processing
        computed = _summed(own, view.current, len(none))
        # Measured cores are shared among the keys whose processors use them; cores that belong to no key stay.
        scale = np.divide(processing, computed, out=np.ones_like(computed), where=computed > processing)
        here = np.where(view.current >= 0, scale[view.current], 1.0) if len(own) else own
        fixed = np.maximum(processing - computed, 0.0)
        # In cores of the profile's speed, since a key takes the same of them at any broker.
        columns.append(("cores", of("cores") * speed + processing, brokers.cores * speed, fixed, own * here))
    if brokers.memory is not None:
        columns.append(("memory", of("memory"), brokers.memory, none, free))
    limits = [Resource(*values, allowed=overload, room=ROOM * overload) for values in columns]
    if messages is not None:
        limit = np.full(len(reported), messages)
        limits.append(Resource(MESSAGES, of("messages"), limit, none, free, allowed=1.0, room=ROOM))
    return limits


def evenness(view: View, limits: list[Resource], tolerance: float, placement: Rows | None = None) -> Resource:
    """Load as a resource whose limit is the mean load, scaled by each broker's strength.

    The mean is taken over the brokers that have room for keys.
    """
    load, speed = view.load(placement).per_broker, view.problem.speed
    able = np.array([resource.share() < resource.room for resource in limits]).all(axis=0) & (speed > 0.0)
    even = load[able].sum() * speed / max(float(speed[able].sum()), NOTHING)
    mean = np.where(able, even, np.minimum(load, even))
    free = np.zeros(len(view.keys))
    return Resource(LOAD, load, mean, np.minimum(view.own, load), free, allowed=1.0 + tolerance, room=1.0 + tolerance)


def binding_candidates(view: View, overload: float, messages: float | None) -> list[Resource]:
    """Resources that a plan may be about: those with limits, and evenness."""
    return [*resources(view, overload, messages), evenness(view, [], 0.0)]


def forecast(view: View, resource: Resource, placement: Rows) -> Floats:
    """Forecast a resource's use at every broker with this placement.

    At a broker whose traffic falls, the proportional use falls with it. At a broker whose traffic rises, the use rises
    by the fleet's mean cost of the added traffic. The own use of keys moves with them unchanged.
    """
    now, then = (_carried(view, resource, rows) for rows in (view.current, placement))
    own_now, own_then = (_summed(resource.own, rows, len(now)) for rows in (view.current, placement))
    proportional = np.maximum(resource.use - resource.fixed - own_now, 0.0)
    constant = resource.use - proportional - own_now
    left = np.divide(then, now, out=np.ones_like(now), where=now > NOTHING)
    mean = float(proportional.sum() / max(float(now.sum()), NOTHING))
    changed = np.where(then <= now, proportional * left, proportional + mean * (then - now))
    return np.asarray(constant + own_then + changed)


def as_if(view: View, limits: list[Resource], placement: Rows) -> list[Resource]:
    """The same resources with the use that is forecast for this placement."""
    return [replace(resource, use=forecast(view, resource, placement)) for resource in limits]


def _carried(view: View, resource: Resource, placement: Rows) -> Floats:
    """(B,) data or messages, whichever the use is proportional to."""
    return view.load(placement).per_broker - view.own if resource.by_data else view.messages(placement).per_broker


def _summed(amount: Floats, placement: Rows, brokers: int) -> Floats:
    placed = placement >= 0
    return np.bincount(placement[placed], weights=amount[placed], minlength=brokers).astype(np.float64)


def too_full(view: View, limits: list[Resource], placement: Rows, *, strict: bool = False) -> list[str]:
    """Brokers that this placement would fill above the allowed share and above the present share of every broker, so
    that a fleet that is too full everywhere can still be levelled; ``strict``: above their own present share."""
    names: dict[str, None] = {}
    for resource in limits:
        now = resource.share()
        most = now if strict else np.full(len(now), now.max(initial=0.0))
        allowed = np.maximum(resource.allowed, most) * (1.0 + NOTHING)
        for row in np.flatnonzero(resource.share(forecast(view, resource, placement)) > allowed).tolist():
            names[view.brokers[row]] = None
    return list(names)


def relief(
    view: View, limits: list[Resource], name: str, frozen: Collection[Key], most: int, begin: Rows | None = None
) -> tuple[Rows, Rows]:
    """Relieve the brokers that are full of the resource ``name``, as far as possible.

    Returns the placement and the keys that move, in order. ``limits`` are those of the placement ``begin``, which is
    the present one by default. The fullest broker gives first, and the key that uses most of the resource goes first.
    It goes to the broker with most room that has enough of every other resource; a topic with a latency bound goes to
    one that is near enough to its clients, if any has room (Gupta, SEC'21, Algorithm 1, lines 18-21, and 3.4.3).
    O(keys of full brokers x brokers).
    """
    violating = view.network.violating_by_key(view)
    at = next(row for row, resource in enumerate(limits) if resource.name == name)
    home, held = (view.current if begin is None else begin).copy(), set(frozen)
    costs = Costs.of(view, limits, home)
    moved: list[int] = []
    for source in np.argsort(-limits[at].share(), kind="stable").tolist():
        if limits[at].share()[source] <= limits[at].allowed:
            break
        here = np.flatnonzero(home == source)
        heaviest = costs.mean[at] * costs.weight[at, here] + costs.own[at, here]
        for key in here[np.argsort(-heaviest, kind="stable")].tolist():
            if costs.use[at, source] <= limits[at].room * costs.limit[at, source] or len(moved) >= most:
                break
            takes = costs.takes(key)
            then = (costs.use + takes[:, None]) / costs.limit
            fits = np.asarray((then <= costs.room).all(axis=0))
            fits[source] = False
            if not fits.any() or not takes[at] or view.keys[key] in held:
                continue
            late = violating.get(key, np.zeros(len(fits), np.int64))
            target = int(np.lexsort((then[at], late, ~fits))[0])
            costs.use[:, source] -= costs.cost[:, source] * costs.weight[:, key] + costs.own[:, key]
            costs.use[:, target] += takes
            home[key] = target
            moved.append(key)
    return home, np.array(moved, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Costs:
    """What keys cost brokers of every resource. ``use`` may be changed while keys are placed."""

    use: Floats  # (R, B)
    limit: Floats  # (R, B)
    room: Floats  # (R, 1) share down to which a full broker is relieved
    own: Floats  # (R, N) part of the use that a key takes along unchanged
    weight: Floats  # (R, N) traffic of keys, in bytes or messages, whichever the use is proportional to
    cost: Floats  # (R, B) of a unit of traffic, at the broker that gives
    mean: Floats  # (R,) the same at the broker that takes

    @classmethod
    def of(cls, view: View, limits: list[Resource], placement: Rows) -> Costs:
        brokers, keys = len(view.brokers), len(view.keys)
        if not limits:
            none = np.zeros((0, brokers))
            return cls(none, none, none[:, :1], np.zeros((0, keys)), np.zeros((0, keys)), none, none[:, 0])
        use, limit, fixed, own = (
            np.array([getattr(resource, column) for resource in limits]) for column in ("use", "limit", "fixed", "own")
        )
        room = np.array([resource.room for resource in limits])[:, None]
        weights = {True: Instance.of(view.problem).weight, False: Instance.of(view.problem_in_messages).weight}
        weight = np.array([weights[resource.by_data] for resource in limits])
        proportional = np.maximum(use - fixed - np.array([_summed(amount, placement, brokers) for amount in own]), 0.0)
        carried = np.array([_summed(amount, placement, brokers) for amount in weight])
        cost = proportional / np.maximum(carried, NOTHING)
        mean = proportional.sum(axis=1) / np.maximum(carried.sum(axis=1), NOTHING)
        return cls(use, np.maximum(limit, NOTHING), room, own, weight, cost, mean)

    def takes(self, key: int) -> Floats:
        """(R,) what the key costs a broker that takes it."""
        return np.asarray(self.mean * self.weight[:, key] + self.own[:, key])
