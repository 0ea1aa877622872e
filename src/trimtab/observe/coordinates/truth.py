"""Made-up networks whose round-trip times are known: what coordinates are tried on. In ms, zero on the diagonal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.model.positions import km_between, on_sphere

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.model.workload import Floats

FEWEST: Final = 2
FIBRE_KM_PER_MS: Final = 100.0  # a round trip in fibre covers twice the way at 200 km/ms
DETOUR: Final = 1.5  # length of a route as a multiple of the great circle

# Latitude and longitude in degrees, rounded, of large cities on all continents.
CITIES: Final = {
    "Tokyo": (35.7, 139.7), "Delhi": (28.6, 77.2), "Shanghai": (31.2, 121.5), "Sao Paulo": (-23.6, -46.6),
    "Mexico City": (19.4, -99.1), "Cairo": (30.0, 31.2), "Mumbai": (19.1, 72.9), "Beijing": (39.9, 116.4),
    "New York": (40.7, -74.0), "Buenos Aires": (-34.6, -58.4), "Istanbul": (41.0, 29.0), "Lagos": (6.5, 3.4),
    "Los Angeles": (34.1, -118.2), "Moscow": (55.8, 37.6), "Paris": (48.9, 2.4), "London": (51.5, -0.1),
    "Bogota": (4.7, -74.1), "Jakarta": (-6.2, 106.8), "Lima": (-12.0, -77.0), "Bangkok": (13.8, 100.5),
    "Seoul": (37.6, 127.0), "Chicago": (41.9, -87.6), "Singapore": (1.3, 103.8), "Johannesburg": (-26.2, 28.0),
    "Madrid": (40.4, -3.7), "Toronto": (43.7, -79.4), "Miami": (25.8, -80.2), "Dallas": (32.8, -96.8),
    "Seattle": (47.6, -122.3), "Atlanta": (33.7, -84.4), "Denver": (39.7, -105.0), "Sydney": (-33.9, 151.2),
    "Melbourne": (-37.8, 145.0), "Auckland": (-36.8, 174.8), "Berlin": (52.5, 13.4), "Frankfurt": (50.1, 8.7),
    "Amsterdam": (52.4, 4.9), "Stockholm": (59.3, 18.1), "Warsaw": (52.2, 21.0), "Vienna": (48.2, 16.4),
    "Milan": (45.5, 9.2), "Zurich": (47.4, 8.5), "Dublin": (53.3, -6.3), "Lisbon": (38.7, -9.1),
    "Athens": (38.0, 23.7), "Tel Aviv": (32.1, 34.8), "Dubai": (25.2, 55.3), "Nairobi": (-1.3, 36.8),
    "Hong Kong": (22.3, 114.2), "Taipei": (25.0, 121.6), "Osaka": (34.7, 135.5), "Manila": (14.6, 121.0),
    "Santiago": (-33.4, -70.7), "San Francisco": (37.8, -122.4), "Montreal": (45.5, -73.6), "Boston": (42.4, -71.1),
}  # fmt: skip


def line(nodes: int, spacing_ms: float = 10.0) -> Floats:
    """Nodes at equal distances on a line."""
    place = np.arange(_checked(nodes)) * spacing_ms
    return np.abs(place[:, None] - place[None, :])


def grid(nodes: int, spacing_ms: float = 10.0) -> Floats:
    """Nodes on a square grid in the plane, row by row."""
    side = int(np.ceil(np.sqrt(_checked(nodes))))
    place = np.stack(np.divmod(np.arange(nodes), side), axis=1) * spacing_ms
    return _apart(place)


def star(nodes: int, rtt_ms: float = 50.0) -> Floats:
    """Equal links to one switch, so that all pairs are equally far apart (Gupta et al., SEC'21, Figure 3a)."""
    return _off_diagonal(np.full((_checked(nodes), nodes), rtt_ms))


def split(nodes: int, lan_ms: float = 1.0, wan_ms: float = 10.0) -> Floats:
    """Two halves: near within, and one long link between."""
    side = np.arange(_checked(nodes)) < nodes // 2
    return _off_diagonal(np.where(side[:, None] == side[None, :], lan_ms, lan_ms + wan_ms))


def zones(nodes: int, far_ms: float = 30.0, near_ms: float = 1.0) -> Floats:
    """Pairs of nodes, 1 ms apart, and 30 ms from everyone else: each node has one short link among many longer ones."""
    zone = np.arange(_checked(nodes)) // 2
    return _off_diagonal(np.where(zone[:, None] == zone[None, :], near_ms, far_ms))


def drift(nodes: int, periods: int, seed: int, *, share: float = 0.1, size_ms: float = 100.0) -> Floats:
    """(periods, N, N) a network that changes: in each period a share of the nodes has moved somewhere else."""
    rng = np.random.default_rng((seed, 1))
    place = rng.random((_checked(nodes), 2)) * size_ms
    access = rng.gamma(2.0, 1.0, nodes)
    matrices = []
    for period in range(periods):
        if period:
            moved = rng.permutation(nodes)[: max(1, round(share * nodes))]
            place[moved] = rng.random((len(moved), 2)) * size_ms
        matrices.append(_off_diagonal(_apart(place) + access[:, None] + access[None, :]))
    return np.stack(matrices)


def cities(nodes: int, seed: int, *, routes: float = 0.06, access_ms: float = 3.0) -> Floats:
    """Nodes in cities of the world: the great circle with a detour, and the time of each node's own access link.

    ``routes`` is the standard deviation of the logarithm of the detour of each pair. One pair in fifty takes a route
    of half again to twice and a half the length, so that triangles are violated.
    """
    rng = np.random.default_rng((seed, 2))
    where = np.array(list(CITIES.values()))[rng.integers(0, len(CITIES), _checked(nodes))]
    place = on_sphere(*(where + rng.normal(scale=0.2, size=where.shape)).T)  # within about 20 km of the centre
    between = DETOUR * np.exp(routes * rng.normal(size=(nodes, nodes)))
    between = np.where(rng.random((nodes, nodes)) < 0.02, between * rng.uniform(1.5, 2.5, (nodes, nodes)), between)
    between = np.triu(between, 1)
    access = rng.gamma(1.5, access_ms / 1.5, nodes)
    rtt = km_between(place, place) / FIBRE_KM_PER_MS * (between + between.T) + access[:, None] + access[None, :]
    return _off_diagonal(rtt)


def clusters(nodes: int, seed: int, *, count: int = 12, routes: float = 0.1) -> Floats:
    """Clusters of different sizes in five dimensions; routes between two clusters share a detour of up to a third."""
    rng = np.random.default_rng((seed, 3))
    cluster = rng.choice(count, _checked(nodes), p=rng.dirichlet(np.ones(count)))
    place = rng.normal(scale=60.0, size=(count, 5))[cluster] + rng.normal(scale=5.0, size=(nodes, 5))
    detour = np.triu(1.0 + rng.random((count, count)) / 3.0)
    detour += np.triu(detour, 1).T
    pair = np.triu(np.exp(routes * rng.normal(size=(nodes, nodes))), 1)
    access = rng.gamma(1.5, 2.0, nodes)
    rtt = _apart(place) * detour[cluster][:, cluster] * (pair + pair.T) + access[:, None] + access[None, :]
    return _off_diagonal(rtt)


TRUTHS: Final[dict[str, Callable[[int, int], Floats]]] = {  # by name: of a number of nodes and a seed
    "line": lambda nodes, seed: line(nodes),
    "grid": lambda nodes, seed: grid(nodes),
    "star": lambda nodes, seed: star(nodes),
    "split": lambda nodes, seed: split(nodes),
    "zones": lambda nodes, seed: zones(nodes),
    "drift": lambda nodes, seed: drift(nodes, 4, seed),
    "cities": cities,
    "clusters": clusters,
}


def _checked(nodes: int) -> int:
    if nodes < FEWEST:
        raise BadInput(f"a network has {FEWEST} nodes or more, but {nodes} were asked for")
    return nodes


def _apart(place: Floats) -> Floats:
    distance: Floats = np.sqrt(((place[:, None, :] - place[None, :, :]) ** 2).sum(axis=2))
    return distance


def _off_diagonal(rtt: Floats) -> Floats:
    np.fill_diagonal(rtt, 0.0)
    return rtt
