"""The joint promise, live: bounds that only a broker both near and idle can keep.

Two cities are far from each other. Each has a busy broker next to its clients, and an idle one a little farther. A
placement by network latency alone chooses the busy brokers, and one by processing alone the idle brokers of either
city.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.fleet import tasks
from trimtab.fleet.broker.capacity import Capacity
from trimtab.lab.experiment import Bar, Report, select
from trimtab.lab.live_rows import figures, pictures, table
from trimtab.lab.live_trial import SETTINGS, TRIMTAB, LiveTrial, World, check
from trimtab.lab.slow_core import SLOWER
from trimtab.model.hardware import Hardware
from trimtab.predict.queueing import Queueing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trimtab.control.settings import Settings
    from trimtab.lab.experiment import Job, Row

NETWORK, PROCESSING = "network", "processing"
POLICIES: Final = (NETWORK, PROCESSING, TRIMTAB)
BUSY, IDLE = (0, 2), (1, 3)  # brokers of each city
FAR_MS: Final = 50.0  # one way, between the cities
NEAR_MS: Final = (1.0, 4.0)  # from clients to the busy broker of their city, and to the idle one
BOUND_MS: Final = 90.0
TOPICS: Final = 3  # with a bound, in each city
RATE: Final = 8.0  # messages/s of such a topic
MS: Final = 1.0  # CPU time of such a message, on a core that is ten times as fast as the emulated one
BUSY_MS, BUSY_RATE = 5.0, 16.0  # of the topic without a bound that keeps a broker busy: eight tenths of its core
SUBSCRIBERS: Final = 2
SIZE_BYTES: Final = 512
SECONDS: Final = 120
WARM_S: Final = {NETWORK: 5.0, PROCESSING: 5.0, TRIMTAB: 45.0}  # trimtab first measures, then moves
PROCESSOR: Final = "trimtab.lab.slow_core:work?ms={ms:g}"
MACHINE: Final = Hardware(
    "tenth-core", cores=1, service=((0.0, 0.5), (1.0, 0.5 + SLOWER)), message_cv=0.1, network_ms=6.0, jitter_ms=2.0
)


class JointLive:
    title = "Bounds that only a broker both near and idle can keep, live"
    seeds = 1
    timed = True

    def jobs(
        self, seeds: int, policy: Sequence[str] = POLICIES, seconds: int = SECONDS, rate: float = RATE,
    ) -> list[Job]:  # fmt: skip
        check(policy, POLICIES)
        return [
            {"policy": name, "seconds": seconds, "rate": rate, "still": False, "kill_hub": False,
             "warm": WARM_S[name], "seed": seed}
            for name in policy for seed in range(seeds)
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        return tasks.run(_Joint(job).run())

    def report(self, rows: list[Row], out: Path) -> Report:
        text = (
            f"Two cities, {FAR_MS:g} ms apart one way, with a busy and an idle broker each, {NEAR_MS[0]:g} and "
            f"{NEAR_MS[1]:g} ms from the clients of their city. A broker counts as a core of a tenth of the speed; "
            f"that of a busy one is used to {SLOWER * BUSY_MS * BUSY_RATE / 1000.0:.0%} by a topic without a bound. "
            f"{TOPICS} topics of each city have a processor of {SLOWER * MS:g} ms per message, {rows[0]['rate']:g} "
            "messages/s, "
            f"and a bound of {BOUND_MS:g} ms from publisher to subscriber. `network`: every topic is at the nearest "
            "broker. `processing`: topics are dealt to the idlest brokers. `trimtab`: they begin as `network` has "
            "them, and the controller moves them; the run begins after the first moves."
        )
        parts = [text, table(rows), *pictures(rows, out, "joint-live", "")]
        bars = []
        for row in select(rows, row="total"):
            about = f"seed {row['seed']}, {row['policy']}: "
            if row["policy"] == TRIMTAB:
                bars.append(Bar.at_least(f"{about}share inside {BOUND_MS:g} ms", row["inside"], 0.99))
            else:
                bars.append(Bar.at_least(f"{about}share outside {BOUND_MS:g} ms", 1.0 - row["inside"], 0.05))
            bars += [Bar.at_most(f"{about}{what}", row[what], 0) for what in ("lost", "doubled", "reordered")]
        return Report("\n\n".join(parts), tuple(bars), figures(rows))


class _Joint(LiveTrial):
    def __init__(self, job: Job) -> None:
        super().__init__(job, _world())

    def first_broker(self, topic: str) -> int:
        city, number = int(topic.split("-")[1]), int(topic.split("-")[2])
        if topic in self.world.free or self.job["policy"] != PROCESSING:
            return BUSY[city]
        return IDLE[(city + number) % len(IDLE)]  # dealt in turn

    def settings(self) -> Settings:
        return replace(SETTINGS, headroom=0.2, model=Queueing(MACHINE).as_json())


def _world() -> World:
    near = np.array([[0.0, 5.0], [5.0, 0.0]])
    far = np.full((2, 2), FAR_MS)
    between = np.block([[near, far], [far, near]])
    leg = np.array([[*NEAR_MS, *(FAR_MS + NEAR_MS[0],) * 2], [*(FAR_MS + NEAR_MS[0],) * 2, *NEAR_MS]])
    # Sites are numbered as brokers, so that a site's gateway is its own broker; clients are at the busy ones.
    leg = leg[[0, 0, 1, 1]]
    place_of: dict[str, str] = {}
    publishers: dict[str, list[str]] = {}
    subscribers: dict[str, set[str]] = {}
    settings: dict[str, dict[str, Any]] = {}
    rates: dict[str, float] = {}
    free: set[str] = set()
    for city in range(2):
        clients = [f"client-{city}-{number}" for number in range(1 + SUBSCRIBERS)]
        place_of |= dict.fromkeys(clients, f"city-{city}")
        for number in range(TOPICS):
            topic = f"joint-{city}-{number}"
            settings[topic] = {"processor": PROCESSOR.format(ms=MS), "latency_ms": BOUND_MS, "limit_ms": 60_000.0}
        busy = f"busy-{city}-0"
        settings[busy] = {"processor": PROCESSOR.format(ms=BUSY_MS), "limit_ms": 60_000.0}
        rates[busy] = BUSY_RATE
        free.add(busy)
        for topic in (busy, *(f"joint-{city}-{number}" for number in range(TOPICS))):
            publishers[topic], subscribers[topic] = clients[:1], set(clients[1:])
    shown = {topic: topic for topic in publishers if topic not in free}
    return World(
        leg, between, BOUND_MS, SIZE_BYTES, place_of, {f"city-{city}": BUSY[city] for city in range(2)}, publishers,
        subscribers, shown, settings, rates, Capacity(cores=1), free,
    )  # fmt: skip
