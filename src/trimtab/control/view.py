"""What the controller sees: the workload as it was measured, and where everybody is now.

Loads are computed from the rates of topics and the homes of clients, by the judge. Rates do not depend on who is where,
so a client that has just moved counts where it is, however old the measurement: no average of a broker's load has to
catch up first. (Pulsar's shedders decide on such averages and shed again what they have shed already, PIP-364.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.model.ids import Ids
from trimtab.model.judgement import Load
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.problem import Problem
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.place.judge import judge

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trimtab.model.workload import Rows
    from trimtab.observe.snapshot import Snapshot, Usage


STRENGTH: Final = ("bandwidth", "storage", "compute", "cores", "memory")


@dataclass(frozen=True, eq=False)
class View:
    """The question as it stands: brokers that are alive, everybody's home among them."""

    snapshot: Snapshot
    homes: Mapping[str, str]
    problem: Problem  # with the current placement; whoever has no home that is alive is unplaced

    @classmethod
    def of(cls, snapshot: Snapshot, homes: Mapping[str, str], alive: Collection[str]) -> View:
        """``homes`` are those of all clients that count, measured or not."""
        known = snapshot.workload
        brokers = _brokers(known.brokers, alive)
        clients, links = _clients(known, homes)
        rows = {name: row for row, name in enumerate(brokers.ids)}
        home = np.fromiter((rows.get(homes[name], UNPLACED) for name in clients.ids), np.int32, len(clients))
        workload = Workload(known.topics, clients, brokers, links)
        return cls(snapshot, homes, Problem(workload, "client", current=Placement("client", home)))

    def without(self, brokers: Collection[str]) -> View:
        """The same if these were not there, nor who is at home there: nobody is to go to them, and nobody to leave."""
        homes = {client: home for client, home in self.homes.items() if home not in brokers}
        return View.of(self.snapshot, homes, [name for name in self.brokers if name not in brokers])

    @property
    def at(self) -> float:
        return self.snapshot.at

    @property
    def usage(self) -> Mapping[str, Usage]:
        return self.snapshot.usage

    @property
    def home(self) -> Rows:
        assert self.problem.current is not None
        return self.problem.current.broker

    @property
    def clients(self) -> Ids:
        return self.problem.workload.clients.ids

    @property
    def brokers(self) -> Ids:
        return self.problem.workload.brokers.ids

    def load(self, home: Rows | None = None) -> Load:
        """Of every broker, with these homes instead of the present ones."""
        return judge(self.problem, Placement("client", self.home if home is None else home)).load

    @cached_property
    def in_messages(self) -> Problem:
        """The same question with messages for data: every one counts alike, however long it is."""
        known = self.problem.workload
        topics = Topics(known.topics.ids, known.topics.rate)
        return Problem(Workload(topics, known.clients, known.brokers, known.links), "client", self.problem.current)

    def messages(self, home: Rows | None = None) -> Load:
        """Messages/s in and out of every broker, with these homes instead of the present ones."""
        return judge(self.in_messages, Placement("client", self.home if home is None else home)).load

    def measured(self) -> Load | None:
        """What the brokers themselves say, if all of them do."""
        said = [self.usage.get(name) for name in self.brokers]
        if not said or any(each is None for each in said):
            return None
        return Load(np.array([each.data for each in said if each is not None]), self.problem.speed)


def informed(snapshot: Snapshot, brokers: Mapping[str, Any], clients: Mapping[str, Any]) -> Snapshot:
    """With what brokers can carry and where everybody is, by the registry, as far as that is known of all of them."""
    known = snapshot.workload
    limits: dict[str, Any] = {}
    for name in ("bandwidth", "cores", "memory"):
        values = [brokers.get(broker, {}).get(name) for broker in known.brokers.ids]
        if values and all(value is not None for value in values):
            limits[name] = values
    there = Brokers(known.brokers.ids, **limits, **_places(known.brokers.ids, brokers))
    people = Clients(known.clients.ids, **_places(known.clients.ids, clients))
    return replace(snapshot, workload=Workload(known.topics, people, there, known.links))


def _places(ids: Ids, entries: Mapping[str, Any]) -> dict[str, Any]:
    found = [entries.get(name, {}).get("position") for name in ids]
    if not found or any(each is None for each in found):
        return {}
    return {"lat": [each[0] for each in found], "lon": [each[1] for each in found]}


def _brokers(known: Brokers, alive: Collection[str]) -> Brokers:
    """Those that are alive; one that was never measured has the mean of the others' strength."""
    there = sorted(alive)
    at = {name: row for row, name in enumerate(known.ids)}
    rows = [at.get(name) for name in there]
    columns: dict[str, Any] = {}
    for name in known.present()[1:]:
        values = getattr(known, name)
        if name in STRENGTH or all(row is not None for row in rows):
            mean = float(values.mean()) if len(values) else 0.0
            columns[name] = [mean if row is None else values[row] for row in rows]
    return Brokers(Ids(there, table="brokers"), **columns)


def _clients(known: Workload, homes: Mapping[str, str]) -> tuple[Clients, Links]:
    """Those who have a home, and their links."""
    there = sorted(homes)
    at = {name: row for row, name in enumerate(there)}
    rows = np.fromiter((at.get(name, -1) for name in known.clients.ids), np.int32, len(known.clients))
    client = rows[known.links.client] if len(known.links) else known.links.client
    kept = client >= 0
    links = Links(known.links.topic[kept], client[kept], known.links.role[kept])
    columns: dict[str, Any] = {}
    if len(known.clients) and np.count_nonzero(rows >= 0) == len(there):  # all were measured
        order = np.argsort(np.where(rows >= 0, rows, len(there)), kind="stable")[: len(there)]
        columns = {name: getattr(known.clients, name)[order] for name in known.clients.present()[1:]}
    return Clients(Ids(there, table="clients"), **columns), links
