"""Gupta et al. (SEC'21), Figure 9, live: a game in five cities whose players change their group again and again."""

from __future__ import annotations

import asyncio
import heapq
import time
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.fleet import tasks
from trimtab.lab.experiment import Bar, Report, select
from trimtab.lab.live_rows import SECONDS, figures, pictures, table
from trimtab.lab.live_trial import FOLLOWING, HASH, TRIMTAB, LiveTrial, World, check, sleep_until
from trimtab.lab.worlds.mmog import cities, to_brokers

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from trimtab.lab.experiment import Job, Row

CITIES: Final = 5
MAP: Final = 9  # seed of the map, on which a hash violates the bound of a quarter of all pairs
FAR_MS: Final = 73  # between its cities, at most
BOUND_MS: Final = 100.0
SIZE_BYTES: Final = 998
RATE: Final = 1.0  # messages/s of an avatar; the paper has 300, on 48 cores
SECONDS_RUN: Final = 600
GROUP: Final = 8
STAYS_S: Final = (30.0, 60.0)  # in a group
WARM_S: Final = 3.0
AT_A_TIME: Final = 8  # subscriptions that begin or end: all clients share a process, which must not be late


class MmogLive:
    title = "A game in five cities with changing groups, live (Gupta Figure 9)"
    seeds = 1
    timed = True

    def jobs(
        self, seeds: int, policy: Sequence[str] = (HASH, TRIMTAB), seconds: int = SECONDS_RUN, rate: float = RATE,
        clients: int = 64, still: bool = False, kill_hub: bool = False,
    ) -> list[Job]:  # fmt: skip
        """``rate``: messages/s of each avatar. ``still``: no group changes."""
        check(policy)
        return [
            {"policy": name, "seconds": seconds, "rate": rate, "clients": clients, "still": still,
             "kill_hub": kill_hub, "warm": WARM_S, "seed": seed}
            for name in policy for seed in range(seeds)
        ]  # fmt: skip

    def run(self, job: Job) -> list[Row]:
        return tasks.run(_Game(job).run())

    def report(self, rows: list[Row], out: Path) -> Report:
        first = rows[0]
        text = (
            f"{first['clients']} avatars in {CITIES} cities, each with a real broker. An avatar's actions are "
            f"published to its topic, {first['rate']:g} messages/s of {SIZE_BYTES} bytes (the paper: 300, on 48 "
            "cores; all "
            "clients share this machine with the brokers), and received for all avatars of its group, its own "
            f"included. Every avatar leaves its group after {STAYS_S[0]:g} to {STAYS_S[1]:g} s and joins another one. "
            f"One way, cities are up to {FAR_MS} ms apart and an avatar is 5 ms from the broker of its city, with 5 "
            "% jitter; "
            f"the hub is 40 ms from every city. The bound is {BOUND_MS:g} ms from publisher to subscriber. A panel "
            "shows one avatar's topic, the slowest of its deliveries. `hash`: topics stay where a hash of their name "
            "puts them, as in Pulsar. `stay`: they begin at any broker that keeps the bound for their first group, and "
            "nobody moves them. `oracle`: they begin there, and the experiment, which knows all distances, orders a "
            "move whenever a group has come to violate the bound. `trimtab`: they begin there, and the controller "
            "moves them. `brokers`: they begin there, and brokers move them themselves, without a controller."
        )
        parts = [text, table(rows), *pictures(rows, out, "mmog-live", "group changes")]
        return Report("\n\n".join(parts), _bars(rows), figures(rows))


class _Game(LiveTrial):
    def __init__(self, job: Job) -> None:
        count = job["clients"]
        rng = np.random.default_rng((job["seed"], count))
        order = rng.permutation(count)
        self.groups: list[set[str]] = [
            {f"avatar-{row}" for row in order[start : start + GROUP]} for start in range(0, count, GROUP)
        ]
        super().__init__(job, _world(count, self.groups))
        self._limit = asyncio.Semaphore(AT_A_TIME)

    async def play(self, until: float) -> None:
        if self.job["still"] or len(self.groups) < 2:
            return
        began = self.played.began
        due = [(began + self.random.uniform(*STAYS_S) * self.random.random(), name) for name in self.clients]
        heapq.heapify(due)  # at the beginning, every avatar is somewhere in its stay
        while due[0][0] < until:
            at, name = heapq.heappop(due)
            await sleep_until(at)
            if time.time() >= until:
                return
            self._change_group(name)
            heapq.heappush(due, (time.time() + self.random.uniform(*STAYS_S), name))

    def first_broker(self, topic: str) -> int:
        """Any broker that keeps the bound for the first group."""
        return self.random.choice(self.world.good(topic))

    def _change_group(self, name: str) -> None:
        old = next(group for group in self.groups if name in group)
        new = self.random.choice([group for group in self.groups if group is not old])
        old.discard(name)
        self._meet(name, old, False)
        self._meet(name, new, True)
        affected = [name, *old, *new]
        new.add(name)
        for topic in affected:
            self.changed(topic, [topic])

    def _meet(self, name: str, others: set[str], together: bool) -> None:
        """Let an avatar and the others receive each other's actions from now on, or no more."""
        for pair in [pair for other in others for pair in ((name, other), (other, name))]:
            client, topic = pair
            subscribers = self.world.subscribers[topic]
            (subscribers.add if together else subscribers.discard)(client)
            self._work.start_once(self._settle, client, topic)

    async def _settle(self, client: str, topic: str) -> None:
        """Subscribe or unsubscribe, until the subscription is as it should be."""
        async with self._limit:
            while (wanted := client in self.world.subscribers[topic]) != ((client, topic) in self.receptions):
                await (self.subscribe if wanted else self.unsubscribe)(client, topic)


def _world(count: int, groups: list[set[str]]) -> World:
    _, _, between = cities(CITIES, np.random.default_rng(MAP))
    names = [f"avatar-{row}" for row in range(count)]
    group_of = {name: group for group in groups for name in group}
    return World(
        to_brokers(between), between, BOUND_MS, SIZE_BYTES,
        {name: f"city-{row % CITIES}" for row, name in enumerate(names)},
        {f"city-{row}": row for row in range(CITIES)},
        {name: [name] for name in names}, {name: set(group_of[name]) for name in names},
        {name: name for name in names},
    )  # fmt: skip


def _bars(rows: list[Row]) -> tuple[Bar, ...]:
    bars = []
    for row in [row for row in select(rows, row="total") if row["policy"] in FOLLOWING]:
        about = f"{row['policy']}, seed {row['seed']}: "
        if row["still"]:
            bars.append(Bar.at_most(f"{about}moves while no group changes", max(row["moves"], row["switches"]), 0))
        else:
            share = 0.97 if row["kill_hub"] else 0.99
            bars.append(Bar.at_least(f"{about}share inside {BOUND_MS:g} ms", row["inside"], share))
        if not (row["still"] or row["kill_hub"]):
            bars.append(Bar.at_most(f"{about}longest excursion after a change of groups, s", row["longest_s"], SECONDS))
        bars += [Bar.at_most(f"{about}{what}", row[what], 0) for what in ("lost", "doubled", "reordered")]
    return tuple(bars)
