"""The parts of a case: clients, topics and brokers, their rates over time, and events."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from trimtab.control.settings import Settings
from trimtab.control.view import View
from trimtab.model.ids import Ids
from trimtab.model.key import Key, RoutingTable
from trimtab.model.placement import UNPLACED
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.place.wire import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from trimtab.model.placement import Unit
    from trimtab.model.workload import Floats, Rows
    from trimtab.observe.snapshot import Snapshot

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
    """A fleet and its load over time. Rates of topics may change every second; all other changes are events."""

    name: str
    about: str
    brokers: int
    rate: Floats  # (K,) of topics, bytes/s
    topic: Rows  # (S,) subscriptions
    client: Rows
    home: Rows  # (keys,) broker of every key at the beginning, see ``keys``
    units: tuple[Unit, ...] | None = None  # (K,) unit of each topic; None: all topics are placed by client
    publisher: Rows | None = None  # (K,) client that publishes each topic, -1: outside the fleet; None: all outside
    bandwidth: Floats | None = None  # (B,) of brokers, bytes/s
    changing: Callable[[int], Floats] | None = None  # second -> factor of every topic's rate
    events: tuple[Event, ...] = ()
    changes: tuple[int, ...] = ()  # seconds at which the rates change for good
    noise: float = 0.0  # standard deviation of a measured rate, as a share of the rate
    lag_s: int = 0  # age of measurements when the balancer gets them
    refuses: tuple[int, ...] = ()  # brokers to which every move fails
    other_load: Floats | None = None  # (B,) load that no client causes, bytes/s
    size: Floats | None = None  # (K,) bytes of a message; None: one byte
    cores: Floats | None = None  # (B,) cores of brokers; a core handles ``PER_CORE`` messages/s
    processing_ms: Floats | None = None  # (K,) CPU time of a message of each topic
    latency_ms: Floats | None = None  # (K,) bound of each topic
    settings: Settings = field(default_factory=Settings)
    seconds: int = HORIZON_S

    @cached_property
    def clients(self) -> int:
        publisher = -1 if self.publisher is None else int(self.publisher.max(initial=-1))
        least = max(int(self.client.max(initial=-1)), publisher) + 1
        return len(self.home) if self.units is None else least

    @cached_property
    def _links(self) -> Links:
        """Subscriptions, then publications."""
        publishes = np.flatnonzero(self.publisher >= 0) if self.publisher is not None else np.zeros(0, np.int64)
        by = self.publisher[publishes] if self.publisher is not None else publishes
        role = np.repeat(np.array([SUB, PUB], np.int8), [len(self.topic), len(publishes)])
        return Links(np.concatenate([self.topic, publishes]), np.concatenate([self.client, by]), role)

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """Clients, then topics placed as a whole, then links of topics placed by link."""
        units = self.units or ()
        links = zip(self._links.topic.tolist(), self._links.client.tolist(), strict=True)
        return (
            *(Key("client", "", f"c{client}") for client in range(self.clients)),
            *(Key("topic", f"t{topic}", "") for topic, unit in enumerate(units) if unit == "topic"),
            *(Key("link", f"t{k}", f"c{i}") for k, i in sorted(set(links)) if units and units[k] == "link"),
        )

    @cached_property
    def rows(self) -> Mapping[Key, int]:
        return {key: row for row, key in enumerate(self.keys)}

    @cached_property
    def owner(self) -> Rows:
        """(L,) key of every link."""
        every: Unit = "client"
        units = self.units or (every,) * len(self.rate)
        pairs = zip(self._links.topic.tolist(), self._links.client.tolist(), strict=True)
        return np.array([self.rows[Key.of(units[k], f"t{k}", f"c{i}")] for k, i in pairs], np.int32)

    def workload(self, rate: Floats) -> Workload:
        size = np.ones(len(rate)) if self.size is None else self.size
        return Workload(
            Topics(
                Ids.numbered("t", len(rate)), rate / size, size, processing_ms=self.processing_ms,
                latency_ms=self.latency_ms,
            ),
            Clients(Ids.numbered("c", self.clients)),
            Brokers(Ids.numbered("b", self.brokers), bandwidth=self.bandwidth, cores=self.cores), self._links,
        )  # fmt: skip

    def load(self, rate: Floats, placement: Rows, alive: NDArray[np.bool_], *, in_messages: bool = False) -> Floats:
        """Load of every broker, in bytes/s or messages/s. A dead broker carries nothing."""
        at = np.where(alive[placement], placement, UNPLACED)[self.owner].astype(np.int32)
        return Traffic.of(self.workload(rate), in_messages=in_messages).wire(at, self.brokers).total

    def view(self, snapshot: Snapshot, placement: Rows, alive: NDArray[np.bool_]) -> View:
        """The controller's view of the fleet."""
        units = {f"t{topic}": unit for topic, unit in enumerate(self.units or ())}
        brokers = dict(zip(self.keys, (f"b{broker}" for broker in placement.tolist()), strict=True))
        return View.of(snapshot, RoutingTable(units, brokers), [f"b{row}" for row in np.flatnonzero(alive)])

    def rates(self, second: int) -> Floats:
        return self.rate if self.changing is None else self.rate * self.changing(second)

    def turns(self) -> list[int]:
        """Seconds at which moves may become necessary: the start, lasting changes of rates, and events."""
        return sorted({0, *self.changes, *(event.at for event in self.events)})


def community(rng: np.random.Generator, clients: int, shared: int = 0) -> tuple[Floats, Rows, Rows]:
    """Rates and subscriptions: every client has an own topic, and one of the shared topics if there are any.

    Rates of own topics are log-uniform from 1e3 to 1e4 bytes/s.
    """
    own = np.exp(rng.uniform(np.log(1e3), np.log(1e4), clients))
    rate = np.concatenate([own, np.full(shared, 5e3)])
    topic, client = np.arange(clients), np.arange(clients)
    if shared:
        topic = np.concatenate([topic, clients + rng.integers(shared, size=clients)])
        client = np.concatenate([client, client])
    return rate, topic.astype(np.int32), client.astype(np.int32)


def even(clients: int, brokers: int) -> Rows:
    """Homes in turn. With rates from one distribution, the loads are nearly level."""
    return (np.arange(clients) % brokers).astype(np.int32)


def levelled(rate: Floats, clients: int, brokers: int, strength: Floats | None = None) -> Rows:
    """Level homes: each client, heaviest first, goes to the broker with the least load, relative to its strength."""
    home, load = np.zeros(clients, np.int32), np.zeros(brokers)
    strengths = np.ones(brokers) if strength is None else strength
    for client in np.argsort(-rate[:clients], kind="stable").tolist():
        home[client] = int(np.argmin((load + rate[client]) / strengths))
        load[home[client]] += rate[client]
    return home


def skewed(rng: np.random.Generator, clients: int, brokers: int) -> Rows:
    """Random homes, with half of all clients at the first broker."""
    home = rng.integers(brokers, size=clients).astype(np.int32)
    home[rng.random(clients) < 0.5] = 0
    return home
