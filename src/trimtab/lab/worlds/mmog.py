"""A massively multiplayer online game on brokers in several cities (Gupta et al., SEC'21, 5.1.2 and 5.5.2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trimtab.errors import BadKnob
from trimtab.lab.worlds.option import option
from trimtab.model.coordinates import Coordinates
from trimtab.model.ids import Ids
from trimtab.model.rtts import Rtts
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload

if TYPE_CHECKING:
    from typing import Any

    from trimtab.model.workload import Floats

    Ints = np.ndarray[Any, np.dtype[np.int64]]

LOCAL_MS = 5.0  # round-trip time of a game server and the broker of its city, and part of every longer way
MAP_MS = (75.0, 40.0)  # round-trip times across the map of cities: about those of the contiguous USA
DETOUR = 0.25  # standard deviation of the logarithm of a way's length over the straight line


@dataclass(frozen=True, slots=True)
class Mmog:
    """Avatars in groups of 8. The game server of an avatar publishes its actions to the avatar's topic, which the game
    servers of all members of its group subscribe to.

    Avatars are spread over cities with equal probability, and are grouped at random. A client is the game server of a
    city as far as it serves one avatar. Coordinates are places on the map; the table ``rtt`` has the true latencies,
    which differ from these by detours.
    """

    cities: int = option(20, "cities, each with a broker")
    clients: int = option(1024, "avatars, each with a topic")
    group: int = option(8, "avatars in a group")
    latency_ms: float = option(100.0, "bound of every topic's network latency")

    def __post_init__(self) -> None:
        for name in ("cities", "clients", "group"):
            if getattr(self, name) < 1:
                raise BadKnob("mmog", name, getattr(self, name), "at least 1")
        if not 0.0 < self.latency_ms < np.inf:
            raise BadKnob("mmog", "latency_ms", self.latency_ms, "more than zero, and finite")

    def make(self, seed: int) -> Workload:
        rng = np.random.default_rng(seed)
        place, height, between = cities(self.cities, rng)
        at = rng.integers(0, self.cities, self.clients)
        site = Coordinates(place, height)
        servers = Coordinates(place[at], height[at] + LOCAL_MS)
        return self.workload(at, rng, servers, site, to_brokers(between)[at])

    def workload(
        self, at: Ints, rng: np.random.Generator, clients: Coordinates | None, brokers: Coordinates | None,
        rtt_ms: Floats | None,
    ) -> Workload:  # fmt: skip
        """The game with avatars in these cities, in random groups; with coordinates, measured pairs, or both."""
        count = len(at)
        order = rng.permutation(count)
        group = np.empty(count, np.int64)
        group[order] = np.arange(count) // self.group
        by_group = np.argsort(group, kind="stable")
        size = np.bincount(group)
        first = np.concatenate([[0], np.cumsum(size)])
        members = size[group]
        topic = np.repeat(np.arange(count), members)
        within = np.arange(len(topic)) - np.repeat(np.cumsum(members) - members, members)
        subscriber = by_group[np.repeat(first[group], members) + within]
        return Workload(
            Topics(Ids.numbered("avatar-", count), np.full(count, 10.0), latency_ms=np.full(count, self.latency_ms)),
            Clients(Ids.numbered("client-", count), coordinate=clients),
            Brokers(Ids.numbered("city-", self.cities), coordinate=brokers),
            Links(
                np.concatenate([np.arange(count), topic]), np.concatenate([np.arange(count), subscriber]),
                np.concatenate([np.full(count, PUB), np.full(len(topic), SUB)]).astype(np.int8),
            ),
            None if rtt_ms is None else Rtts.matrix(rtt_ms),
        )  # fmt: skip


def cities(count: int, rng: np.random.Generator) -> tuple[Floats, Floats, Floats]:
    """(count, 2) places in ms, (count,) heights in ms, and (count, count) round-trip times between cities."""
    place = rng.uniform(0.0, MAP_MS, (count, 2))
    height = rng.exponential(1.0, count)
    straight = np.sqrt(((place[:, None] - place[None]) ** 2).sum(axis=2))
    detour = np.exp(np.abs(rng.normal(0.0, DETOUR, straight.shape)))
    between = straight * np.triu(detour, 1)
    between = between + between.T + height[:, None] + height[None, :]
    np.fill_diagonal(between, 0.0)
    return place, height, between


def to_brokers(between_ms: Floats) -> Floats:
    """(cities, cities) round-trip times from the game server of one city to the broker of another, or of its own."""
    return np.asarray(between_ms + LOCAL_MS)
