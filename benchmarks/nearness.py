"""Topics near their clients: time of a placement, exactness of summaries, and rest under jitter. One core.

``TRIMTAB_TOPICS`` (1000000) and ``TRIMTAB_BROKERS`` (1000) are the size of the largest placement, made from what
brokers report of their topics, without any client.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trimtab.cli.output import print_table
from trimtab.lab.embedding import Sites
from trimtab.lab.worlds.mmog import LOCAL_MS, Mmog, cities, to_brokers
from trimtab.model.coordinates import Coordinates
from trimtab.model.ids import Ids
from trimtab.model.nearness import Nearness, Ranked
from trimtab.model.network import Network
from trimtab.model.placement import Placement
from trimtab.model.present import MANY, Present, gain_needed
from trimtab.model.problem import ROUND_TRIP, Problem
from trimtab.model.workload import Brokers
from trimtab.observe.coordinates.registry import coordinate_model
from trimtab.observe.summary import as_columns, best_brokers
from trimtab.place.registry import policy
from trimtab.place.topic.by_network import decide
from trimtab.place.topic.room import Room

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trimtab.lab.worlds.mmog import Ints
    from trimtab.model.workload import Floats, Rows, Workload

TOPICS = int(os.environ.get("TRIMTAB_TOPICS", "1000000"))
BROKERS = int(os.environ.get("TRIMTAB_BROKERS", "1000"))
REPEATS = 7
SEED = 11


def game(sites: int, clients: int, seed: int) -> Problem:
    return Problem(replace(Mmog(cities=sites, clients=clients).make(seed), rtt=None), "topic", leg=ROUND_TRIP)


def timed(work: Callable[[], object], repeats: int = REPEATS) -> tuple[float, float]:
    """Median and longest time in s, after one run that compiles."""
    work()
    took = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        took.append(time.perf_counter() - begin)
    return float(np.median(took)), max(took)


def paper_size() -> None:
    problem = game(67, 1024, SEED)
    rows = []
    for name in ("hash", "centroid", "all-pairs", "trim"):
        own = policy(f"topic/{name}", k=10**6) if name == "hash" else policy(f"topic/{name}")
        first = own.place(problem)
        again = replace(problem, current=first)
        median, longest = timed(lambda own=own: own.place(problem))
        then, _ = timed(lambda own=own, again=again: own.place(again))
        rows.append((name, f"{1e3 * median:.1f} ms", f"{1e3 * longest:.1f} ms", f"{1e3 * then:.1f} ms"))
    print_table("1,024 topics x 67 brokers", ["policy", "median", "longest", "from a present placement"], rows)


class Never:
    """No longer list is asked for."""

    listed = 0

    def best(self, topics: Rows, most: int) -> Rows:
        raise AssertionError


def from_summaries() -> None:
    """A million topics: each with its present broker and the two best brokers, as reported. Capacity is a third above
    need, so that many topics do not get the broker they prefer."""
    rng = np.random.default_rng(SEED)
    present_ms, best_ms = rng.uniform(20, 200, TOPICS), rng.uniform(20, 150, (TOPICS, 2))
    bound = rng.uniform(50, 200, TOPICS)
    best_ms.sort(axis=1)
    broker = rng.integers(0, BROKERS, (TOPICS, 2)).astype(np.int32)
    home = rng.integers(0, BROKERS, TOPICS).astype(np.int32)
    late = np.where(best_ms <= bound[:, None], 0, MANY)
    ranked = Ranked(broker, best_ms, late, rng.integers(0, BROKERS, TOPICS))
    less = gain_needed(present_ms, 0.05, 2.0)
    present = Present(present_ms - less, np.where(present_ms - less > bound, 1, 0), less, np.ones(TOPICS, bool))
    use = rng.exponential(1.0, (2, TOPICS))
    room = Room(use, np.full((2, BROKERS), 4.0 / 3.0 * use.sum(axis=1).max() / BROKERS), np.array([1.0, 0.85]))
    median, longest = timed(lambda: decide(ranked, present, room, home, Never()), 3)
    moved = int((decide(ranked, present, room, home, Never()) != home).sum())
    print_table(f"{TOPICS:,} topics x {BROKERS:,} brokers, from summaries", ["median", "longest", "topics that move"],
                [(f"{median:.2f} s", f"{longest:.2f} s", f"{moved:,}")], left=())  # fmt: skip


def from_coordinates() -> None:
    """A tenth of the topics with the coordinates of all clients: what all brokers together compute for their summaries,
    and the placement."""
    problem = game(BROKERS, TOPICS // 10, SEED)
    begin = time.perf_counter()
    policy("topic/trim").place(problem)
    took = time.perf_counter() - begin
    print_table(f"{TOPICS // 10:,} topics x {BROKERS:,} brokers, from all coordinates", ["time"], [(f"{took:.2f} s",)],
                left=())  # fmt: skip


def exactness(topics: int = 100_000, brokers: int = 60) -> None:
    """Choices from eight values a topic against those of all-pairs."""
    problem = game(brokers, topics, SEED)
    unlimited = replace(problem, workload=replace(problem.workload, brokers=Brokers(
        Ids.numbered("b", brokers), coordinate=problem.workload.brokers.coordinate)))  # fmt: skip
    nearness = Nearness.of(unlimited, Network.needed(unlimited.workload, "latencies"))
    names, home = unlimited.workload.brokers.ids, np.zeros(topics, np.int32)
    reports = best_brokers(nearness, home, names, 0.0, 0.0)
    room = Room.of(unlimited, 0.85, None)
    placed = decide(*as_columns(reports, home, nearness.bound_ms, names, 0.0, 0.0), room, home, Never())
    ours, theirs = nearness.at(placed), nearness.at(policy("topic/all-pairs").place(unlimited).broker)
    worse = (ours.violating > theirs.violating) | (
        (ours.violating == theirs.violating) & (ours.worst_ms > theirs.worst_ms + 0.001)
    )
    better = ours.violating < theirs.violating
    print_table(f"{topics:,} topics, eight values each, against all-pairs", ["worse", "fewer violating pairs"],
                [(f"{int(worse.sum()):,}", f"{int(better.sum()):,}")], left=())  # fmt: skip


def rest(placements: int = 60) -> None:
    """Moves when nobody moves, in placements that follow each other."""
    between = cities(40, np.random.default_rng(SEED))[2]
    at = np.random.default_rng(SEED).integers(0, 40, 1024)
    rows = []
    for name, workloads in (
        ("coordinates every 5 s, of probes with 5 % jitter", learning(between, at, placements)),
        ("5 % jitter of every pair", jittered(between, at, placements)),
        ("another embedding every time", embedded(between, at, placements)),
    ):
        current, moves, back = None, [], 0
        left: list[set[int]] = [set() for _ in at]
        for workload in workloads:
            placement = policy("topic/trim").place(Problem(workload, "topic", current, leg=ROUND_TRIP))
            if current is not None:
                moved = np.flatnonzero(placement.broker != current.broker).tolist()
                moves.append(len(moved))
                back += sum(int(placement.broker[topic]) in left[topic] for topic in moved)
                for topic in moved:
                    left[topic].add(int(current.broker[topic]))
            current = Placement("topic", placement.broker)
        rows.append((name, f"{sum(moves[:10]):,}", f"{sum(moves[10:]):,}", f"{back:,}"))
    title = f"moves of 1,024 topics in 40 cities, {placements} placements, nobody moves"
    print_table(title, ["latencies", "first ten", "after that", "of these, to a broker left before"], rows)


def workload_of(at: Ints, gateway: Coordinates | None, broker: Coordinates | None, rtt_ms: Floats | None) -> Workload:
    clients = None if gateway is None else gateway.take(at)
    return Mmog(cities=40).workload(at, np.random.default_rng(SEED), clients, broker, rtt_ms)


def learning(between: Floats, at: Ints, placements: int) -> Iterator[Workload]:
    """After 600 probes of each node, the coordinates as they change with every five probes more."""
    gateway = to_brokers(between)
    others = gateway + LOCAL_MS
    np.fill_diagonal(others, 0.0)
    truth = np.block([[between, gateway.T], [gateway, others]])
    model, rng = coordinate_model("robust"), np.random.default_rng(SEED)
    nodes = [model.node(number) for number in range(len(truth))]
    peers = [rng.permutation(np.delete(np.arange(len(truth)), number))[:32] for number in range(len(truth))]
    for turn in range(600 + 5 * placements):
        for number, node in enumerate(nodes):
            peer = int(rng.choice(peers[number]))
            rtt = max(truth[number, peer], 0.1) * (1.0 + 0.05 * rng.random())
            node.update(str(peer), nodes[peer].coordinate(), rtt)
            nodes[peer].update(str(number), node.coordinate(), rtt)
        if turn >= 600 and turn % 5 == 0:
            now = [node.coordinate() for node in nodes]
            both = Coordinates([each.point for each in now], [each.height for each in now])
            sites = np.arange(len(between), dtype=np.int32)
            yield workload_of(at, both.take(len(between) + sites), both.take(sites), None)


def jittered(between: Floats, at: Ints, placements: int) -> Iterator[Workload]:
    rng, true = np.random.default_rng(SEED), to_brokers(between)[at]
    for _ in range(placements):
        yield workload_of(at, None, None, true * rng.uniform(1.0, 1.05, true.shape))


def embedded(between: Floats, at: Ints, placements: int) -> Iterator[Workload]:
    """Independent embeddings, with outliers too: what would happen if the fleet forgot everything each time."""
    for number in range(placements):
        sites = Sites.embedded(between, to_brokers(between), "robust", 32, number)
        yield workload_of(at, sites.gateway, sites.broker, None)


def main() -> None:
    paper_size()
    exactness()
    rest()
    from_summaries()
    from_coordinates()


if __name__ == "__main__":
    main()
