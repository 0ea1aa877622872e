"""The controller's view of the fleet: the measured workload, and the present broker of every key.

Loads are computed from the rates of topics and the placement of keys, by the judge's functions. Rates do not depend on
the placement. So a key that has just moved counts at its new broker, however old the measurement, and no average of a
broker's load has to catch up first. (Pulsar's shedders decide on such averages and shed the same load twice, PIP-364.)

Policies get a problem of the client family in which the keys are the clients. A key of a client has that client's
subscriptions. Load that a key causes whatever else its broker carries (a whole topic, a publisher's messages) is a
private topic of that key. So every policy of the family places topics and links, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.network_latency import NetworkByBroker
from trimtab.fleet.protocol.names import STOCK
from trimtab.model.ids import Ids
from trimtab.model.judgement import Load
from trimtab.model.key import Key
from trimtab.model.owners import link_owners, placed_by
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.problem import Problem
from trimtab.model.workload import PUB, Brokers, Clients, Links, Topics, Workload, columns_of
from trimtab.place.wire import Traffic, weights

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from numpy.typing import NDArray

    from trimtab.model.key import RoutingTable
    from trimtab.model.rtts import Rtts
    from trimtab.model.workload import Floats, Rows
    from trimtab.observe.snapshot import Snapshot, Usage


STRENGTH: Final = ("bandwidth", "storage", "compute", "cores", "cpu_speed", "memory")
NO_VALUE: Final = {"latency_ms": np.nan}  # of columns of topics in which zero would be a value; of private topics
ORDER: Final = {"client": 0, "topic": 1, "link": 2}  # of keys in a view


@dataclass(frozen=True, eq=False)
class View:
    """Brokers that are alive, keys, the broker of each key among them, and the traffic that follows from it."""

    snapshot: Snapshot
    routing: RoutingTable
    keys: tuple[Key, ...]
    brokers: Ids
    current: Rows  # (keys,) row in brokers, UNPLACED where a key's broker is not alive
    owner: Rows  # (L,) key of every link of the snapshot, -1 for a link without a key
    fixed: Rows  # (L,) broker of links that have a broker but no key, UNPLACED for all others
    whole: NDArray[np.bool_]  # (K,) topics that are placed as a whole

    @classmethod
    def of(cls, snapshot: Snapshot, routing: RoutingTable, alive: Collection[str]) -> View:
        """The view of a measurement. ``routing`` has all keys that count, measured or not."""
        brokers = Ids(sorted(alive), table="brokers")
        rows = {name: row for row, name in enumerate(brokers)}
        keys = tuple(sorted(routing.brokers, key=lambda key: (ORDER[key.unit], *key)))
        current = np.fromiter((rows.get(routing.brokers[key], UNPLACED) for key in keys), np.int32, len(keys))
        workload = snapshot.workload
        whole = placed_by("topic", workload.topics.ids, routing)
        fixed = _fixed(snapshot, rows)
        owner = np.where(fixed == UNPLACED, link_owners(workload, routing, keys), -1).astype(np.int32)
        return cls(snapshot, routing, keys, brokers, current, owner, fixed, whole)

    def without(self, brokers: Collection[str]) -> View:
        """The same fleet without these brokers and the keys that are placed there."""
        kept = {key: broker for key, broker in self.routing.brokers.items() if broker not in brokers}
        routing = replace(self.routing, brokers=kept)
        return View.of(self.snapshot, routing, [name for name in self.brokers if name not in brokers])

    @property
    def at(self) -> float:
        return self.snapshot.at

    @property
    def usage(self) -> Mapping[str, Usage]:
        return self.snapshot.usage

    @cached_property
    def rows(self) -> Mapping[Key, int]:
        """The row of every key."""
        return {key: row for row, key in enumerate(self.keys)}

    def broker_of(self, key: Key) -> str:
        return self.routing.broker_of(key)

    def placed(self, changes: Mapping[Key, str]) -> Rows:
        """The placement if these keys were at these brokers. Unknown keys and brokers are ignored."""
        then, brokers = self.current.copy(), {name: row for row, name in enumerate(self.brokers)}
        for key, broker in changes.items():
            if key in self.rows and broker in brokers:
                then[self.rows[key]] = brokers[broker]
        return then

    @property
    def workload(self) -> Workload:
        """The measured workload with the brokers that are alive."""
        measured = self.snapshot.workload
        every = np.arange(len(measured.clients), dtype=np.int32)
        return Workload(measured.topics, measured.clients, self._brokers(), measured.links, self._rtt(every))

    # Loads.

    @cached_property
    def data(self) -> Traffic:
        return Traffic.of(self.snapshot.workload)

    @cached_property
    def in_messages(self) -> Traffic:
        return Traffic.of(self.snapshot.workload, in_messages=True)

    def carriers(self, placement: Rows | None = None) -> Rows:
        """(L,) broker of every link."""
        rows = self.current if placement is None else placement
        if not len(rows):
            return self.fixed
        return np.where(self.owner >= 0, rows[self.owner], self.fixed).astype(np.int32)

    def load(self, placement: Rows | None = None) -> Load:
        """Data/s in and out of every broker's server, with this placement instead of the present one."""
        if placement is None:
            return self._present_load
        wire = self.data.wire(self.carriers(placement), len(self.brokers))
        return Load(wire.total + self.own + self._requests_at(placement), self.problem.speed)

    @cached_property
    def _present_load(self) -> Load:
        return self.load(self.current)

    def messages(self, placement: Rows | None = None) -> Load:
        """Messages/s of topics in and out of every broker's server."""
        wire = self.in_messages.wire(self.carriers(placement), len(self.brokers))
        return Load(wire.total, self.problem.speed)

    @cached_property
    def own(self) -> Floats:
        """(B,) data/s of requests and reports between the fleet's processes, as measured, that moves with no key."""
        measured = np.array([self.usage[name].own if name in self.usage else 0.0 for name in self.brokers])
        return np.asarray(measured - self._requests_at(None))

    @cached_property
    def requests(self) -> Floats:
        """(keys,) data/s of a client's requests and reports, which move with it: the same for all clients, since it
        depends on neither the placement nor, by much, on the client."""
        clients = np.fromiter((key.unit == "client" for key in self.keys), bool, len(self.keys))
        total = sum(self.usage[name].clients for name in self.brokers if name in self.usage)
        return np.where(clients, total / max(int(clients.sum()), 1), 0.0)

    def _requests_at(self, placement: Rows | None) -> Floats:
        rows = self.current if placement is None else placement
        placed = rows != UNPLACED
        return np.bincount(rows[placed], weights=self.requests[placed], minlength=len(self.brokers)).astype(np.float64)

    @cached_property
    def network(self) -> NetworkByBroker:
        """Network latencies of whole topics with a bound."""
        return NetworkByBroker.of(self)

    def homes(self, topics: Rows) -> Rows:
        """Broker of each of these topics, UNPLACED for one that is not placed as a whole."""
        ids = self.snapshot.workload.topics.ids
        keys = (self.rows.get(Key("topic", ids[row], "")) for row in topics.tolist())
        return np.array([UNPLACED if row is None else self.current[row] for row in keys], np.int32)

    @cached_property
    def processing(self) -> Floats:
        """(keys,) cores that processors take along with each key."""
        workload = self.snapshot.workload
        amount = np.zeros(len(self.keys))
        if workload.topics.processing_ms is None:
            return amount
        row = np.flatnonzero((workload.links.role == PUB) & (self.owner >= 0))
        topic = workload.links.topic[row]
        cores = workload.topics.rate[topic] * weights(workload)[row] * workload.topics.processing_ms[topic] / 1000.0
        return amount + np.bincount(self.owner[row], weights=cores, minlength=len(self.keys))

    def measured(self) -> Load | None:
        """Loads by the brokers' own reports, if all of them report."""
        reported = [self.usage.get(name) for name in self.brokers]
        if not reported or any(usage is None for usage in reported):
            return None
        return Load(np.array([usage.data for usage in reported if usage is not None]), self.problem.speed)

    # The problem for policies.

    @cached_property
    def problem(self) -> Problem:
        """The problem with the present placement. A key whose broker is not alive is unplaced."""
        return self._problem(self.data)

    @cached_property
    def problem_in_messages(self) -> Problem:
        """The same problem in messages instead of bytes."""
        return self._problem(self.in_messages)

    def _problem(self, traffic: Traffic) -> Problem:
        measured = self.snapshot.workload
        links = measured.links
        own = traffic.own(self.owner, self.carriers(), len(self.keys), self.whole)
        if traffic is self.data:
            own = own + self.requests
        private = np.flatnonzero(own > 0.0).astype(np.int32)
        shared = np.flatnonzero((links.role != PUB) & (self.owner >= 0) & ~self.whole[links.topic])
        topic = np.concatenate([links.topic[shared], len(measured.topics) + np.arange(len(private), dtype=np.int32)])
        # A topic that one client subscribes to takes its rate twice, once in and once out.
        rate = np.concatenate([traffic.delivered, own[private] / 2.0])
        ids = measured.topics.ids
        if len(private):
            ids = Ids([*ids, *(f"of {self.keys[row]}" for row in private.tolist())], table="topics")
        others = {
            spec.name: np.concatenate([values, np.full(len(private), NO_VALUE.get(spec.name, 0.0))])
            for spec in columns_of(Topics)
            if spec.name not in ("rate", "size_bytes", "out_rate", "out_bytes", "relayed", "taps")
            and (values := getattr(measured.topics, spec.name)) is not None
        }
        clients = self._clients()
        workload = Workload(
            Topics(ids, rate, **others), clients, self._brokers(),
            Links.subscriptions(topic.astype(np.int32), np.concatenate([self.owner[shared], private])),
            self._rtt(clients.ids.find(measured.clients.ids.arrow)) if self._all_clients else None,
        )  # fmt: skip
        return Problem(workload, "client", current=Placement("client", self.current))

    def _brokers(self) -> Brokers:
        """Columns of the brokers. A broker that was never measured gets the mean strength of the others."""
        measured = self.snapshot.workload.brokers
        rows = measured.ids.find(self.brokers.arrow)
        columns: dict[str, Any] = {}
        for name in measured.present()[1:]:
            values = getattr(measured, name)
            if name in STRENGTH or (rows >= 0).all():
                mean = float(values.mean()) if len(values) else 0.0
                columns[name] = [mean if row < 0 else values[row] for row in rows.tolist()]
        coordinate = None if measured.coordinate is None else measured.coordinate.behind(rows, np.zeros(len(rows)))
        return Brokers(self.brokers, **columns, coordinate=coordinate)

    def _rtt(self, clients: Rows) -> Rtts | None:
        """Measured round-trip times to the brokers that are alive, given the row of every measured client."""
        measured = self.snapshot.workload
        if measured.rtt is None:
            return None
        return measured.rtt.renumbered(clients, self.brokers.find(measured.brokers.ids.arrow))

    def _clients(self) -> Clients:
        """Keys as clients, by name; with the clients' columns if every key is a measured client."""
        measured = self.snapshot.workload.clients
        ids = Ids([key.client if key.unit == "client" else str(key) for key in self.keys], table="clients")
        columns: dict[str, Any] = {}
        if self._all_clients:
            rows = measured.ids.find(ids.arrow)
            columns = {name: getattr(measured, name)[rows] for name in measured.present()[1:]}
            columns["coordinate"] = None if measured.coordinate is None else measured.coordinate.take(rows)
        return Clients(ids, **columns)

    @cached_property
    def _all_clients(self) -> bool:
        """Whether every key is a measured client."""
        measured = self.snapshot.workload.clients
        if not len(measured) or not all(key.unit == "client" for key in self.keys):
            return False
        return bool((measured.ids.find([key.client for key in self.keys]) >= 0).all())


def _fixed(snapshot: Snapshot, brokers: Mapping[str, int]) -> Rows:
    """Broker of the links of plain NATS and MQTT clients, which stay at the broker they are connected to."""
    links = snapshot.workload.links
    fixed = np.full(len(links), UNPLACED, np.int32)
    stock = {f"{STOCK}{name}": row for name, row in brokers.items()}
    at = np.fromiter((stock.get(name, UNPLACED) for name in snapshot.workload.clients.ids), np.int32)
    return np.asarray(at[links.client], np.int32) if len(links) else fixed
