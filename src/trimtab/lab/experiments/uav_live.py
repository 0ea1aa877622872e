"""Gupta et al. (SEC'21), Figure 8, live: swarms of vehicles that fly over four zones of a city."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.fleet import tasks
from trimtab.lab.experiment import Bar, Report, select
from trimtab.lab.live_rows import SECONDS, figures, pictures, table
from trimtab.lab.live_trial import FOLLOWING, HASH, TRIMTAB, LiveTrial, World, check, sleep_until
from trimtab.lab.worlds.uav import BETWEEN_MS, INSIDE_MS, SIDE_KM, zones_over_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trimtab.lab.experiment import Job, Row

ZONES: Final = 4
BOUND_MS: Final = 40.0
SIZE_BYTES: Final = 1024
RATE: Final = 4.0  # messages/s of a vehicle; the paper has 200, on 48 cores
SECONDS_RUN: Final = 600
SIZE: Final = 8  # vehicles of a swarm
WARM_S: Final = 3.0


class UavLive:
    title = "Swarms of vehicles over four zones, live (Gupta Figure 8)"
    seeds = 1
    timed = True

    def jobs(
        self, seeds: int, policy: Sequence[str] = (HASH, TRIMTAB), seconds: int = SECONDS_RUN, rate: float = RATE,
        clients: int = 64, still: bool = False, kill_hub: bool = False, side: float = SIDE_KM,
    ) -> list[Job]:  # fmt: skip
        """``rate``: messages/s of each vehicle. ``still``: nobody moves. ``side``: of the city, in km."""
        check(policy)
        return [
            {"policy": name, "seconds": seconds, "rate": rate, "clients": clients, "still": still,
             "kill_hub": kill_hub, "warm": WARM_S, "side_km": float(side), "seed": seed}
            for name in policy for seed in range(seeds)
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        return tasks.run(_Flight(job).run())

    def report(self, rows: list[Row], out: Path) -> Report:
        first = rows[0]
        swarms = -(-first["clients"] // SIZE)
        text = (
            f"{swarms} swarms of up to {SIZE} vehicles fly at 50 m/s by random waypoint over {ZONES} zones of a city "
            f"of {first['side_km']:g} km by {first['side_km']:g} km, each with a real broker. A leader publishes to "
            f"its followers, and they publish to it: {first['rate']:g} messages/s of 1 KiB from every vehicle (the "
            "paper: 200, on 48 cores; all clients share this machine with the brokers). One way, zones are "
            f"{BETWEEN_MS:g} ms apart and a vehicle {INSIDE_MS:g} ms from the broker of its zone, with 5 % jitter; "
            "the hub is 40 ms from "
            f"every zone. The bound is {BOUND_MS:g} ms from publisher to subscriber, so a swarm's topics must be in "
            "its zone. `hash`: topics stay where a hash of their name puts them, as in Pulsar. `stay`: they begin in "
            "the zone of their swarm, and nobody moves them. `oracle`: the experiment orders the right moves at every "
            "change of zones. `trimtab`: the controller moves them. `brokers`: without a controller, brokers move "
            "them themselves."
        )
        parts = [text, table(rows), *pictures(rows, out, "uav-live", "swarm changes zone")]
        return Report("\n\n".join(parts), _bars(rows), figures(rows))


class _Flight(LiveTrial):
    def __init__(self, job: Job) -> None:
        swarms = -(-job["clients"] // SIZE)
        flown = (job["seconds"], job["seed"])
        self.beginning, self.changes = zones_over_time(swarms, *flown, side_km=job["side_km"])
        super().__init__(job, _world(job["clients"], self.beginning))

    async def play(self, until: float) -> None:
        began = self.played.began
        for change in () if self.job["still"] else self.changes:
            await sleep_until(min(until, began + change.at_s))
            if time.time() >= until:
                return
            swarm = f"swarm-{change.swarm}"
            moving = self.move_place(swarm, change.zone)
            self.changed(swarm, (f"{swarm}.lead", f"{swarm}.sense"))
            await moving

    def group_of(self, topic: str) -> str:
        return topic.partition(".")[0]


def _world(clients: int, zones: list[int]) -> World:
    leg = np.full((ZONES, ZONES), BETWEEN_MS + INSIDE_MS)
    np.fill_diagonal(leg, INSIDE_MS)
    between = np.full((ZONES, ZONES), BETWEEN_MS)
    np.fill_diagonal(between, 0.0)
    publishers, subscribers = {}, {}
    names = [f"uav-{number}" for number in range(clients)]
    for swarm in range(len(zones)):
        leader, *followers = names[SIZE * swarm : SIZE * (swarm + 1)]
        publishers[f"swarm-{swarm}.lead"], subscribers[f"swarm-{swarm}.lead"] = [leader], set(followers)
        publishers[f"swarm-{swarm}.sense"], subscribers[f"swarm-{swarm}.sense"] = followers, {leader}
    return World(
        leg, between, BOUND_MS, SIZE_BYTES,
        {name: f"swarm-{number // SIZE}" for number, name in enumerate(names)},
        {f"swarm-{swarm}": zone for swarm, zone in enumerate(zones)},
        publishers, subscribers, {f"swarm-{swarm}": f"swarm-{swarm}.lead" for swarm in range(len(zones))},
    )  # fmt: skip


def _bars(rows: list[Row]) -> tuple[Bar, ...]:
    bars = []
    for row in [row for row in select(rows, row="total") if row["policy"] in FOLLOWING]:
        about = f"{row['policy']}, seed {row['seed']}: "
        if row["still"]:
            bars.append(Bar.at_most(f"{about}moves while nobody moves", max(row["moves"], row["switches"]), 0))
        elif row["kill_hub"]:
            bars.append(Bar.at_least(f"{about}hub killed: share inside {BOUND_MS:g} ms", row["inside"], 0.97))
        else:
            bars.append(Bar.at_least(f"{about}share inside {BOUND_MS:g} ms", row["inside"], 0.99))
            bars.append(Bar.at_most(f"{about}longest excursion after a change of zones, s", row["longest_s"], SECONDS))
        bars += [Bar.at_most(f"{about}{what}", row[what], 0) for what in ("lost", "doubled", "reordered")]
    return tuple(bars)
