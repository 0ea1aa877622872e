"""Topics follow their clients: a broker tells the controller when the bound of a topic that it hosts is missed.

The controller measures the whole fleet every few seconds, but a client that moves changes the latency of its topics at
once. The broker of a topic learns of that from the client's next report, and reports the topic directly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Final

import nats.errors

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ReportMissed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from nats.aio.client import Client as Nats

    from trimtab.fleet.broker.links import Links
    from trimtab.fleet.broker.positions import ClientPositions
    from trimtab.fleet.broker.summaries import TopicSummaries
    from trimtab.observe.best_brokers import AtBrokers

log = logging.getLogger("trimtab.agent")
PERIOD_S: Final = 0.5
EVERYTHING_S: Final = 5.0  # interval at which all topics are looked at, since coordinates of brokers change too
ANSWER_S: Final = 1.0


class Following:
    """``run`` is a loop that does not end. ``stock`` returns the subscriptions of plain clients here, by topic."""

    def __init__(
        self, connection: Nats, summaries: TopicSummaries, links: Links, positions: ClientPositions,
        alive: Callable[[], Collection[str]], stock: Callable[[], Mapping[str, int]],
    ) -> None:  # fmt: skip
        self.missed: dict[str, AtBrokers] = {}  # topics that another broker would serve better, at the last look
        self._connection = connection
        self._summaries = summaries
        self._links = links
        self._positions = positions
        self._alive = alive
        self._stock = stock

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        everything_at = loop.time()
        while True:
            await asyncio.sleep(PERIOD_S)
            everything = loop.time() >= everything_at
            if everything:
                everything_at = loop.time() + EVERYTHING_S
            await self.look(everything=everything)
            if self.missed:
                await self._report()

    async def look(self, *, everything: bool = False) -> None:
        """Find missed bounds among the topics whose clients have moved, and those that were missed before."""
        moved = self._positions.take_moved()
        topics = None if everything else self.missed.keys() | self._links.topics_of(moved)
        if topics is None or topics:
            found = await self._summaries.missed(topics, self._alive(), self._stock())
            for topic in found.keys() - self.missed.keys():
                log.info("topic %s: %g ms at %s", topic, *_at_home(found[topic]))
            self.missed = found

    async def _report(self) -> None:
        # Without a controller there is no answer; the next report is due soon.
        with contextlib.suppress(BadInput, Unreachable, nats.errors.Error, TimeoutError, OSError):
            await wire.ask(self._connection, ReportMissed(self.missed), ANSWER_S)


def _at_home(miss: AtBrokers) -> tuple[float, str]:
    return miss.brokers[miss.broker][0], miss.broker
