"""What a live controller sees: the newest measurement, who is at home where, which brokers are alive."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from trimtab.control.view import View, informed
from trimtab.fleet.protocol import coding, wire
from trimtab.fleet.protocol.admin_verbs import ListBrokers, ListClients

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats

    from trimtab.control.record import Record
    from trimtab.observe.snapshot import Snapshot

OLD_S: Final = 30.0  # a measurement that is older is none


class Sight:
    """Asks the keeper, and reads measurements as they come."""

    def __init__(self, connection: Nats, record: Record) -> None:
        self._connection = connection
        self._record = record
        self._snapshot: tuple[int, Snapshot] | None = None

    async def brokers(self) -> tuple[dict[str, Any], list[str]]:
        """What is known of each, and those that are alive."""
        said = await wire.ask(self._connection, ListBrokers(), 2.0)
        return coding.plain(said.entries), said.alive

    async def homes(self) -> tuple[dict[str, str], list[str]]:
        """Of all clients, also of those that are away; and the brokers that are alive."""
        said = await wire.ask(self._connection, ListClients(), 5.0)
        return {name: each.home for name, each in said.entries.items()}, said.alive

    async def view(self, leaving: dict[str, float]) -> View | None:
        """What there is to decide on, if anything. Brokers that are ``leaving`` until some time, and were forgotten or
        took too long, are taken off that list."""
        found = await self._record.snapshot(self._snapshot[0] if self._snapshot else 0)
        self._snapshot = found or self._snapshot
        if self._snapshot is None or time.time() - self._snapshot[1].at > OLD_S:
            return None
        said = await wire.ask(self._connection, ListClients(), 5.0)
        about, _ = await self.brokers()
        snapshot, alive = informed(self._snapshot[1], about, coding.plain(said.entries)), set(said.alive)
        there = set(snapshot.workload.clients.ids)
        # Whoever is not there counts for nothing, but must have a home that is alive when it comes back.
        homes = {name: each.home for name, each in said.entries.items() if name in there or each.home not in alive}
        for name in [each for each, until in leaving.items() if each not in about or until < time.time()]:
            del leaving[name]
        emptied = {name for name in leaving if name not in set(homes.values())}  # as good as gone
        return View.of(snapshot, homes, [name for name in said.alive if name not in emptied])
