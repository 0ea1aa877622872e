"""Gupta et al. (SEC'21), Figure 4: broker selection for a multiplayer game in 5 to 66 cities."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.lab.experiment import Bar, Report, mean, select
from trimtab.lab.experiments.coordinates import digest
from trimtab.lab.experiments.near import (
    CENTROID,
    ORACLE,
    TRIM,
    distinct_cities,
    draw,
    ratio,
    selected,
    table,
)
from trimtab.lab.worlds.mmog import Mmog, cities, to_brokers
from trimtab.observe.coordinates.matrix import read_matrix
from trimtab.place.topic.probe import PROBES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.lab.experiment import Job, Row
    from trimtab.model.coordinates import Coordinates
    from trimtab.model.workload import Floats, Workload

    Ints = np.ndarray[Any, np.dtype[np.int64]]

CITIES: Final = (5, 10, 20, 40, 66)
JUDGED: Final = (20, 40, 66)
PERMUTATIONS: Final = 3  # of clients over cities and groups, for each choice of cities
PEERS: Final = 32
MAP: Final = "map"  # the network without a matrix


class Figure4:
    title = "Broker selection for a multiplayer game (Gupta Figure 4)"
    seeds = 5
    timed = False

    def jobs(
        self, seeds: int, matrix: Sequence[str] = (), unit: str = "ms", peers: int = PEERS, most: int = CITIES[-1],
        clients: int = 1024,
    ) -> list[Job]:  # fmt: skip
        """``matrix``: files of round-trip times between nodes, of which those of one region are the cities."""
        networks = [(path, digest(path)) for path in matrix] or [(MAP, "")]
        for path, key in networks:
            needed = max(size for size in CITIES if size <= most)
            if key and len(distinct_cities(_matrix(path, key, unit), needed, np.random.default_rng(0))) < needed:
                raise BadInput(f"{path} has fewer than {needed} nodes in different places of one region: set --most")
        return [
            {"network": path, "digest": key, "unit": unit, "cities": size, "peers": peers, "clients": clients,
             "seed": seed}
            for path, key in networks for size in CITIES if size <= most for seed in range(seeds)
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        rng = np.random.default_rng((job["seed"], job["cities"]))
        if job["digest"]:
            everything = _matrix(job["network"], job["digest"], job["unit"])
            chosen = distinct_cities(everything, job["cities"], rng)
            between = np.fmin(everything, everything.T)[np.ix_(chosen, chosen)]
            np.fill_diagonal(between, 0.0)
        else:
            between = cities(job["cities"], rng)[2]
        world = Mmog(cities=job["cities"], clients=job["clients"])
        rows = []
        for permutation in range(PERMUTATIONS):
            at = rng.integers(0, job["cities"], size=(job["clients"],))
            make = _Game(world, at, (job["seed"], job["cities"], permutation)).make
            rows += [row | {"permutation": permutation} for row in
                     selected(make, between, to_brokers(between), job["peers"], job["seed"])]  # fmt: skip
        return rows

    def report(self, rows: list[Row], out: Path) -> Report:
        texts = [_about(rows)]
        for name in dict.fromkeys(row["network"] for row in rows):
            part = select(rows, network=name)
            picture = "figure-4.png" if name == MAP else f"figure-4-{len(texts)}.png"
            draw(part, "cities", Mmog().latency_ms, out / picture)
            source = "Cities on a map, with detours." if name == MAP else f"Cities are nodes of `{name}`."
            texts.append(f"{source}\n\n![Figure 4]({picture})\n\n{table(part, 'cities')}")
        figures = {
            f"{row['network']} {row['cities']} {row['selection']}": mean(
                rows, "violations", network=row["network"], cities=row["cities"], selection=row["selection"]
            )
            for row in rows
        }
        return Report("\n\n".join(texts), _bars(rows), {"violations": figures})


class _Game:
    """Makes the same game from different knowledge of latencies."""

    def __init__(self, world: Mmog, at: Ints, seed: tuple[int, ...]) -> None:
        self.world, self.at, self.seed = world, at, seed

    def make(self, gateway: Coordinates | None, broker: Coordinates | None, rtt_ms: Floats | None) -> Workload:
        clients = None if gateway is None else gateway.take(self.at)
        measured = None if rtt_ms is None else rtt_ms[self.at]
        return self.world.workload(self.at, np.random.default_rng(self.seed), clients, broker, measured)


@lru_cache(maxsize=2)
def _matrix(path: str, key: str, unit: str) -> Floats:
    return read_matrix(path, unit).rtt_ms


def _about(rows: list[Row]) -> str:
    clients, peers = rows[0]["clients"], rows[0]["peers"]
    return (
        f"{clients:,} avatars in groups of 8, spread over the cities with equal probability; a topic for each avatar, "
        "published by its game server and received by those of all members of its group. The bound is 100 ms, and a "
        "leg counts as its round-trip time, as in the paper. Coordinates after 600 probes of every game server and "
        "broker, with 5 % jitter and 1 % of times that are five times too long: Serf's, of probes to random nodes, and "
        f"trimtab's (robust), of probes to {peers} peers and to the broker of the same city. `measured`: the "
        "round-trip times that game servers have measured to brokers among their peers override estimates. `probes`: "
        "up to eight candidates are measured "
        "before a topic is placed. `truth`: all true latencies are known; for `trim`, this is the oracle, which has "
        "the fewest violating pairs that are possible. Everything is judged by the true latencies."
    )


def _bars(rows: list[Row]) -> tuple[Bar, ...]:
    bars = [Bar.at_most("most brokers probed for a topic", max(row["probed"] for row in rows), PROBES)]
    networks = list(dict.fromkeys(row["network"] for row in rows))
    for name in networks:
        about = f"{Path(name).name}, " if len(networks) > 1 else ""
        judged = [row for row in select(rows, network=name) if row["cities"] in JUDGED]
        for size in JUDGED:
            here = select(judged, cities=size)
            if here:
                bars.append(Bar.at_most(f"{about}{size} cities: violations of trim over the oracle's",
                                        ratio(here, TRIM, ORACLE), 1.15))  # fmt: skip
        if judged:
            bars.append(Bar.at_most(f"{about}all of these: violations of trim over those of centroid",
                                    ratio(judged, TRIM, CENTROID), 0.75))  # fmt: skip
    return tuple(bars)
