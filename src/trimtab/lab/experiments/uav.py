"""Gupta et al. (SEC'21), Figure 5: broker selection for swarms of vehicles over 4 to 32 zones of a city."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.lab.experiment import Bar, Report, mean, select
from trimtab.lab.experiments.near import ORACLE, TRIM, draw, selected, table
from trimtab.lab.worlds.uav import BETWEEN_MS, Uav, to_brokers

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.lab.experiment import Job, Row
    from trimtab.lab.worlds.uav import Ints
    from trimtab.model.coordinates import Coordinates
    from trimtab.model.workload import Floats, Workload

ZONES: Final = (4, 8, 16, 32)
PERMUTATIONS: Final = 5  # of swarms over zones, for each embedding
PEERS: Final = 32


class Figure5:
    title = "Broker selection for swarms of vehicles (Gupta Figure 5)"
    seeds = 5
    timed = False

    def jobs(self, seeds: int, peers: int = PEERS, most: int = ZONES[-1]) -> list[Job]:
        return [
            {"zones": zones, "scattered": scattered, "peers": peers, "seed": seed}
            for scattered in (False, True) for zones in ZONES if zones <= most for seed in range(seeds)
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        world = Uav(zones=job["zones"], scattered=job["scattered"])
        between = np.full((job["zones"], job["zones"]), BETWEEN_MS)
        np.fill_diagonal(between, 0.0)
        rng = np.random.default_rng((job["seed"], job["zones"]))
        rows = []
        for permutation in range(PERMUTATIONS):
            zone = world.places(rng)

            def make(
                gateway: Coordinates | None, broker: Coordinates | None, rtt_ms: Floats | None, zone: Ints = zone
            ) -> Workload:
                vehicles = None if gateway is None else gateway.take(zone)
                return world.workload(vehicles, broker, None if rtt_ms is None else rtt_ms[zone])

            rows += [row | {"permutation": permutation} for row in
                     selected(make, between, to_brokers(job["zones"]), job["peers"], job["seed"])]  # fmt: skip
        return rows

    def report(self, rows: list[Row], out: Path) -> Report:
        texts = [
            "16 swarms of 8 vehicles. A leader publishes to its followers, and they publish to it. Sites of zones are "
            f"{BETWEEN_MS:g} ms apart (round trip), vehicles 1 ms from the site of their zone, whose coordinate they "
            "use; the bound is 40 ms, and a leg counts as its round-trip time. Coordinates after 600 probes with 5 % "
            "jitter and 1 % of times that are five times too long. What the selections know is as in `mmog`; a site "
            "always measures the broker of its own zone."
        ]
        for scattered, about in ((False, "A swarm is in one zone"), (True, "Every vehicle is in a zone of its own")):
            part = select(rows, scattered=scattered)
            if part:
                picture = f"figure-5-{'scattered' if scattered else 'together'}.png"
                draw(part, "zones", Uav().latency_ms, out / picture)
                texts.append(f"{about}:\n\n![Figure 5]({picture})\n\n{table(part, 'zones')}")
        return Report("\n\n".join(texts), _bars(rows), {
            f"{'scattered' if row['scattered'] else 'together'} {row['zones']} {row['selection']}":
                mean(rows, "violations", scattered=row["scattered"], zones=row["zones"], selection=row["selection"])
            for row in rows
        })  # fmt: skip


def _bars(rows: list[Row]) -> tuple[Bar, ...]:
    bars = []
    for scattered, about in ((False, "swarms together"), (True, "swarms scattered")):
        part = select(rows, scattered=scattered)
        for zones in ZONES:
            here = select(part, zones=zones, selection=TRIM.label)
            if here:
                most = max(row["violations"] for row in here)
                bars.append(Bar.at_most(f"{about}, {zones} zones: largest violation ratio of trim", most, 0.0))
        if part:
            least = mean(part, "violations", selection=ORACLE.label)
            bars.append(Bar.at_most(f"{about}: violation ratio of the oracle", least, 0.0))
    return tuple(bars)
