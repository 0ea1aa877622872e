"""What an agent reports of the network latency of the topics that its broker hosts: two best brokers for each topic.

The agent knows the positions of the clients of these topics and the coordinates of all brokers (Gupta et al., SEC'21,
3.2, report centroids instead). The size of a report does not depend on the number of clients.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from trimtab.observe.best_brokers import AtBrokers, BestBrokers, Pairs, at_brokers, summarise
from trimtab.observe.report import ClientPosition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from trimtab.fleet.broker.links import Links
    from trimtab.fleet.broker.positions import ClientPositions
    from trimtab.fleet.protocol.registry import Registry
    from trimtab.observe.coordinates.coordinate import Coordinate

LEG: Final = 0.5  # of a round-trip time: bounds are about delivery times, one way
AT_ONCE: Final = 20_000  # latencies that are computed before other work has its turn


class TopicSummaries:
    """Summaries of whole topics with a latency bound. A topic's clients connect to its broker, so it knows them all,
    except plain NATS and MQTT clients of other brokers."""

    def __init__(self, broker: str, registry: Registry, links: Links, positions: ClientPositions) -> None:
        self._broker = broker
        self._registry = registry
        self._links = links
        self._positions = positions

    async def take(self, alive: Collection[str], stock: Mapping[str, int]) -> dict[str, BestBrokers]:
        """By topic. ``stock`` has the subscriptions of this broker's plain clients by topic."""
        bounds, brokers = self._bounds(), sorted(alive)
        home = brokers.index(self._broker) if self._broker in brokers else -1
        pairs = await self._pairs(bounds, brokers, stock)
        return {topic: summarise(pairs[topic], bound, home, brokers) for topic, bound in bounds.items()}

    async def at_brokers(
        self, topics: Collection[str] | None, alive: Collection[str], stock: Mapping[str, int]
    ) -> tuple[dict[str, AtBrokers], set[str]]:
        """The latencies of those of these topics (None: of all) that are hosted here, and the names of those whose
        bound is missed though another broker is better."""
        bounds = self._bounds(topics)
        brokers = sorted(alive)
        found: dict[str, AtBrokers] = {}
        if self._broker not in brokers:
            return found, set()
        home = brokers.index(self._broker)
        for topic, pairs in (await self._pairs(bounds, brokers, stock)).items():
            if (known := at_brokers(pairs, bounds[topic], home, brokers)) is not None:
                found[topic] = known
        missed = {name for name, known in found.items() if known.worst_ms > bounds[name] and known.better()}
        return found, missed

    def _bounds(self, topics: Collection[str] | None = None) -> dict[str, float]:
        """Those of these topics (None: of all) that are hosted here and have a bound."""
        find = self._registry.find_topic
        known = self._registry.topics() if topics is None else {name: find(name) for name in topics}
        return {
            name: topic.latency_ms
            for name, topic in known.items()
            if topic is not None and topic.whole and topic.broker == self._broker and topic.latency_ms
        }

    async def _pairs(self, topics: Collection[str], brokers: list[str], stock: Mapping[str, int]) -> dict[str, Pairs]:
        """Publishers and subscribers of each topic."""
        if not topics:
            return {}
        ways, found = Ways(self._registry.coordinates(), brokers), {}
        here = ways.legs(ClientPosition(self._broker, 0.0)) if self._broker in brokers else None
        done = 0
        for topic in topics:
            sides: dict[str, list[list[float]]] = {"pub": [], "sub": []}
            for client, roles in self._links.roles_by_client(topic).items():
                position = self._positions.get(client)
                legs = None if position is None else ways.legs(position)
                done += len(brokers)
                if legs is not None:
                    for role in roles:
                        sides[role].append(legs)
            if here is not None and stock.get(topic):
                sides["sub"].append(here)
            found[topic] = Pairs(sides["pub"], sides["sub"], len(brokers))
            if done > AT_ONCE:
                done = 0
                await asyncio.sleep(0)
        return found


class Ways:
    """Latencies from the gateways of clients to all brokers; clients behind one gateway differ only in their access."""

    def __init__(self, coordinates: Mapping[str, Coordinate], brokers: list[str]) -> None:
        self._coordinates = coordinates
        self._brokers = brokers
        self._row = {name: row for row, name in enumerate(brokers)}
        self._from: dict[str, list[tuple[float, float]]] = {}  # gateway -> time to each broker, and its adjustment

    def legs(self, position: ClientPosition) -> list[float] | None:
        """The client's latency to each broker, one way; None if none is known."""
        access = position.access_ms
        legs = []
        for plain, adjustment in self._ways(position.gateway):
            rtt_ms = plain + access
            legs.append(LEG * (rtt_ms + adjustment if rtt_ms + adjustment > 0.0 else rtt_ms))
        for broker, rtt_ms in ({position.gateway: access} | position.rtts).items():
            if broker in self._row:
                legs[self._row[broker]] = LEG * rtt_ms
        return legs if any(map(math.isfinite, legs)) else None

    def _ways(self, gateway: str) -> list[tuple[float, float]]:
        ways = self._from.get(gateway)
        if ways is None:
            here = self._coordinates.get(gateway)
            ways = [self._way(here, self._coordinates.get(broker)) for broker in self._brokers]
            self._from[gateway] = ways
        return ways

    @staticmethod
    def _way(one: Coordinate | None, other: Coordinate | None) -> tuple[float, float]:
        if one is None or other is None or len(one.point) != len(other.point):
            return math.inf, 0.0
        return one.plain_rtt_ms(other), one.adjustment + other.adjustment
