"""A real fleet whose measurements are published by hand, so that tests of controllers need no Spark."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter

import numpy as np

from helpers.fleet import RunningFleet
from trimtab.fleet import tasks
from trimtab.fleet.protocol.admin_verbs import ListClients
from trimtab.fleet.protocol.snapshots import messages
from trimtab.model.ids import Ids
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot, Usage

CLIENTS = 24


class MeasuredFleet(RunningFleet):
    """Everybody has a topic of his own; ``rates`` are theirs, in bytes/s."""

    def start(self) -> None:
        super().start()
        self.rates = np.full(CLIENTS, 1000.0)
        self.measuring = True
        self.cores = {}  # in use, by broker
        self._number = 0

        async def begin():
            self._measure = asyncio.create_task(self._publish())

        self.do(begin())

    async def _publish(self) -> None:
        admin = await self.launch.admin()
        rows = np.arange(CLIENTS, dtype=np.int32)
        while True:
            await asyncio.sleep(0.2)  # the period of the measurements
            if not self.measuring:
                continue
            names = list(self.launch.sites)
            snapshot = Snapshot(
                time.time(),
                Workload(
                    Topics(Ids.numbered("t", CLIENTS), self.rates), Clients(Ids.numbered("p", CLIENTS)),
                    Brokers(Ids(names)), Links.subscriptions(rows, rows),
                ),
                {name: Usage(1.0, cores=self.cores.get(name, 0.0)) for name in names},
            )  # fmt: skip
            self._number += 1
            with contextlib.suppress(Exception):
                for subject, part in messages(self._number, snapshot.pack()):
                    await admin.jetstream().publish(subject, part)

    def stop(self) -> None:
        self.do(tasks.end(self._measure))
        super().stop()

    async def homes(self) -> Counter:
        said = await self.aask(ListClients())
        return Counter(each.home for name, each in said.entries.items() if name.startswith("p"))


@contextlib.asynccontextmanager
async def people(fleet, home="b1"):
    """Clients of whom all but the named few are where they like."""
    async with contextlib.AsyncExitStack() as stack:
        made = [await stack.enter_async_context(fleet.client(f"p{at}", home)) for at in range(CLIENTS)]
        yield made
