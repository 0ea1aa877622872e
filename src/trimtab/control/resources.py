"""What brokers use of what they have, what it would be with clients elsewhere, and whom to move where one is full.

A broker is full when it uses 85 % of any hardware it has, or carries more messages than it should (Gupta, SEC'21,
3.4.2). Data has the policies for it. What else there is goes with messages: the share of cores or memory that a client
takes is the share it has of its broker's messages (ibid., 3.4.3), and a relief moves those who have most of them first,
until the broker has room again.
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
    from trimtab.model.workload import Floats, Rows

ROOM: Final = 0.9  # of what is allowed: a broker that was relieved is not full again at the next message
DATA: Final = "bandwidth"
MESSAGES: Final = "message rate"
NOTHING: Final = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One thing of which brokers have so much."""

    name: str
    use: Floats  # (B,) now
    limit: Floats  # (B,) all there is
    fixed: Floats  # (B,) of what is used, that which clients do not take with them
    allowed: float  # share above which a broker is full
    room: float = 0.0  # share at which it is not full any more

    @property
    def by_data(self) -> bool:
        """Whether it goes with bytes; else with messages."""
        return self.name in (DATA, LOAD)

    def share(self, use: Floats | None = None) -> Floats:
        return np.asarray((self.use if use is None else use) / np.maximum(self.limit, NOTHING))


def resources(view: View, overload: float, messages: float | None) -> list[Resource]:
    """Everything whose limit is known of all brokers. ``messages`` is what is too much, ``overload`` the share of
    anything else that is."""
    brokers, none = view.problem.workload.brokers, np.zeros(len(view.brokers))
    said = [view.usage.get(name) for name in view.brokers]

    def of(name: str) -> Floats:
        return np.array([float(getattr(each, name)) if each else 0.0 for each in said])

    found: list[tuple[str, Floats, Floats, Floats]] = []
    if np.isfinite(view.problem.bandwidth).all():
        found.append((DATA, view.load().per_broker, view.problem.bandwidth, none))
    if brokers.cores is not None:
        found.append(("cores", of("cores") + of("processing"), brokers.cores, of("processing")))
    if brokers.memory is not None:
        found.append(("memory", of("memory"), brokers.memory, none))
    made = [Resource(*each, allowed=overload, room=ROOM * overload) for each in found]
    if messages is not None:
        made.append(Resource(MESSAGES, of("messages"), np.full(len(said), messages), none, 1.0, ROOM))
    return made


def evenness(view: View, limits: list[Resource], tolerance: float, home: Rows | None = None) -> Resource:
    """As if a broker had no more than the mean load, for its strength; the mean of those that can take anybody."""
    load, speed = view.load(home).per_broker, view.problem.speed
    able = np.array([each.share() < each.room for each in limits]).all(axis=0) & (speed > 0.0)
    even = load[able].sum() * speed / max(float(speed[able].sum()), NOTHING)
    mean = np.where(able, even, np.minimum(load, even))
    return Resource(LOAD, load, mean, np.zeros(len(load)), allowed=1.0 + tolerance, room=1.0 + tolerance)


def all_that_binds(view: View, overload: float, messages: float | None) -> list[Resource]:
    """What a plan may be about: limits, and evenness."""
    return [*resources(view, overload, messages), evenness(view, [], 0.0)]


def forecast(view: View, resource: Resource, home: Rows) -> Floats:
    """What brokers will use with these homes: less in proportion at those that give, more at those that take by what it
    costs on average."""
    now, then = (_carried(view, resource, each) for each in (view.home, home))
    goes = resource.use - resource.fixed
    left = np.divide(then, now, out=np.ones_like(now), where=now > NOTHING)
    mean = float(goes.sum() / max(float(now.sum()), NOTHING))
    return np.asarray(resource.fixed + np.where(then <= now, goes * left, goes + mean * (then - now)))


def as_if(view: View, limits: list[Resource], home: Rows) -> list[Resource]:
    """What brokers will use with these homes, for what they use now."""
    return [replace(each, use=forecast(view, each, home)) for each in limits]


def _carried(view: View, resource: Resource, home: Rows) -> Floats:
    """(B,) that which the use of a resource goes with."""
    return (view.load(home) if resource.by_data else view.messages(home)).per_broker


def too_full(view: View, limits: list[Resource], home: Rows) -> list[str]:
    """Brokers that these homes would fill more than is allowed, and more than any is filled now."""
    found: dict[str, None] = {}
    for resource in limits:
        allowed = max(resource.allowed, float(resource.share().max(initial=0.0))) * (1.0 + NOTHING)
        for row in np.flatnonzero(resource.share(forecast(view, resource, home)) > allowed).tolist():
            found[view.brokers[row]] = None
    return list(found)


def relief(
    view: View, limits: list[Resource], name: str, frozen: Collection[str], most: int, begin: Rows | None = None
) -> tuple[Rows, Rows]:
    """Homes with which no broker is full of a resource, as far as that can be; and who moves, in this order. ``limits``
    are of the homes that it begins with, the present ones if nothing is said.

    Off the fullest broker, whoever has most of it first, to the one that has most room and enough of everything else
    (Gupta, SEC'21, Algorithm 1, lines 18-21, and 3.4.3). O(clients of full brokers x brokers).
    """
    at = next(row for row, each in enumerate(limits) if each.name == name)
    use, limit = (np.array([getattr(each, column) for each in limits]) for column in ("use", "limit"))  # (R, B)
    limit = np.maximum(limit, NOTHING)
    room = np.array([each.room for each in limits])[:, None]
    goes = use - np.array([each.fixed for each in limits])
    wanted = {True: Instance.of(view.problem).weight, False: Instance.of(view.in_messages).weight}
    weight = np.array([wanted[each.by_data] for each in limits])  # (R, N)
    home, held = (view.home if begin is None else begin).copy(), set(frozen)
    there = np.array([np.bincount(home[home >= 0], each[home >= 0], len(view.brokers)) for each in weight])
    cost = goes / np.maximum(there, NOTHING)  # at the broker that gives
    mean = goes.sum(axis=1) / np.maximum(there.sum(axis=1), NOTHING)  # at the one that takes
    moved: list[int] = []
    for source in np.argsort(-limits[at].share(), kind="stable").tolist():
        if limits[at].share()[source] <= limits[at].allowed:
            break
        here = np.flatnonzero(home == source)
        for client in here[np.argsort(-weight[at, here], kind="stable")].tolist():
            if use[at, source] <= limits[at].room * limit[at, source] or len(moved) >= most:
                break
            takes = mean * weight[:, client]
            then = (use + takes[:, None]) / limit
            fits = (then <= room).all(axis=0)
            fits[source] = False
            if not fits.any() or not takes[at] or view.clients[client] in held:
                continue
            target = int(np.argmin(np.where(fits, then[at], np.inf)))
            use[:, source] -= cost[:, source] * weight[:, client]
            use[:, target] += takes
            home[client] = target
            moved.append(client)
    return home, np.array(moved, np.int32)
