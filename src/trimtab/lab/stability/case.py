"""What a case is made of: who is there, what they want over time, and what happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from trimtab.control.settings import Settings
from trimtab.model.ids import Ids
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.model.workload import Floats, Rows

Action = Literal["dies", "returns", "joins"]
HORIZON_S: Final = 1200
PER_CORE: Final = 50_000.0  # messages/s


@dataclass(frozen=True, slots=True)
class Event:
    at: int  # seconds
    action: Action
    broker: int


@dataclass(frozen=True, eq=False)
class Case:
    """Rates of topics may change from second to second; everything else is said by events."""

    name: str
    about: str
    brokers: int
    rate: Floats  # (K,) of topics, bytes/s
    topic: Rows  # (L,) subscriptions
    client: Rows
    home: Rows  # (N,) at the beginning
    bandwidth: Floats | None = None  # (B,) of brokers, bytes/s
    changing: Callable[[int], Floats] | None = None  # second -> factor of every topic's rate
    events: tuple[Event, ...] = ()
    changes: tuple[int, ...] = ()  # seconds at which the rates change for good
    noise: float = 0.0  # of a measured rate, as a share of it
    lag_s: int = 0  # age of measurements when they come
    refuses: tuple[int, ...] = ()  # brokers to which every move fails
    besides: Floats | None = None  # (B,) load that no client causes, bytes/s
    size: Floats | None = None  # (K,) bytes of a message; without, one
    cores: Floats | None = None  # (B,) of brokers; each is busy with ``PER_CORE`` messages/s
    settings: Settings = field(default_factory=Settings)
    seconds: int = HORIZON_S

    def workload(self, rate: Floats) -> Workload:
        size = np.ones(len(rate)) if self.size is None else self.size
        return Workload(
            Topics(Ids.numbered("t", len(rate)), rate / size, size), Clients(Ids.numbered("c", len(self.home))),
            Brokers(Ids.numbered("b", self.brokers), bandwidth=self.bandwidth, cores=self.cores),
            Links.subscriptions(self.topic, self.client),
        )  # fmt: skip

    def rates(self, second: int) -> Floats:
        return self.rate if self.changing is None else self.rate * self.changing(second)

    def turns(self) -> list[int]:
        """When something happens that may call for moves."""
        return sorted({0, *self.changes, *(event.at for event in self.events)})


def community(rng: np.random.Generator, clients: int, shared: int = 0) -> tuple[Floats, Rows, Rows]:
    """Everybody has a topic of his own, rates over a decade, and one of some that are shared."""
    own = np.exp(rng.uniform(np.log(1e3), np.log(1e4), clients))
    rate = np.concatenate([own, np.full(shared, 5e3)])
    topic, client = np.arange(clients), np.arange(clients)
    if shared:
        topic = np.concatenate([topic, clients + rng.integers(shared, size=clients)])
        client = np.concatenate([client, client])
    return rate, topic.astype(np.int32), client.astype(np.int32)


def even(clients: int, brokers: int) -> Rows:
    """Who comes first is served first; with rates drawn alike that is nearly level."""
    return (np.arange(clients) % brokers).astype(np.int32)


def levelled(rate: Floats, clients: int, brokers: int, strength: Floats | None = None) -> Rows:
    """The heaviest first to the emptiest: as level as it can be."""
    home, load = np.zeros(clients, np.int32), np.zeros(brokers)
    strong = np.ones(brokers) if strength is None else strength
    for client in np.argsort(-rate[:clients], kind="stable").tolist():
        home[client] = int(np.argmin((load + rate[client]) / strong))
        load[home[client]] += rate[client]
    return home


def skewed(rng: np.random.Generator, clients: int, brokers: int) -> Rows:
    """Half of everybody at the first broker."""
    home = rng.integers(brokers, size=clients).astype(np.int32)
    home[rng.random(clients) < 0.5] = 0
    return home
