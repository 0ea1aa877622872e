"""The link family: speed against a plain Python Algorithm 1 and against HiGHS, time and memory up to 10 M links."""

from __future__ import annotations

import heapq
import multiprocessing
import resource
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.cli.output import number, percent, print_table, seconds
from trimtab.lab.answer import ask, warm_up
from trimtab.lab.worlds.maxdata import MaxData
from trimtab.model.problem import Problem
from trimtab.place.registry import policy

if TYPE_CHECKING:
    from collections.abc import Callable

SEEDS = 3
SIZES = {
    500: MaxData(publishers=100, machines=10, bandwidth=500),
    50_000: MaxData(publishers=1000, subscribers=1000, edges=50, rates="low", machines=200, bandwidth=2000),
    10_000_000: MaxData(
        publishers=1_000_000, subscribers=200_000, edges=50, rates="high", machines=1000, bandwidth=60_000
    ),
}


def main() -> None:
    _speed()
    _against_highs()
    _memory()


def _speed() -> None:
    rows = []
    for links, world in SIZES.items():
        for name in ("link/gs", "link/trim"):
            warm_up(name)
            repeats = {500: 200, 50_000: 30, 10_000_000: 2}[links]
            best, plain, shares = [], [], []
            for seed in range(SEEDS if links < 1e6 else 1):
                problem = Problem(world.make(seed), "link")
                chosen = policy(name)
                best.append(min(_timed(lambda p=problem, a=chosen: a.place(p)) for _ in range(repeats)))
                shares.append(1 - ask(name, problem).gap())
                if links < 1e6:
                    plain.append(min(_timed(lambda p=problem: plain_greedy(p)) for _ in range(3)))
            ratio = f"{np.mean(plain) / np.mean(best):,.0f} x" if plain else "-"
            rows.append((name, f"{links:,}", seconds(min(best)), seconds(max(best)), ratio, percent(min(shares), 3)))
    print_table(
        f"a broker for every link, one core, warm, best of many calls; {SEEDS} seeds (1 at 10 M)",
        ["policy", "links", "fastest seed", "slowest seed", "faster than plain Python gs", "worst % of bound"],
        rows,
    )


def _against_highs(limit_s: float = 10.0) -> None:
    rows = []
    for world in (
        MaxData(machines=5, bandwidth=500),
        MaxData(rates="low", machines=5, bandwidth=500),
        MaxData(rates="low", machines=20, bandwidth=200),
        MaxData(publishers=1000, machines=15, bandwidth=200),
    ):
        gaps: dict[str, list[float]] = {"link/trim": [], "link/ilp": []}
        times: dict[str, list[float]] = {"link/trim": [], "link/ilp": []}
        proven = {"link/trim": 0, "link/ilp": 0}
        for seed in range(SEEDS):
            problem = Problem(world.make(seed), "link")
            answers = {name: ask(name, problem, time_limit_s=limit_s) for name in gaps}
            bound = min((a.bound for a in answers.values()), key=lambda b: b.value)
            for name, answer in answers.items():
                gaps[name].append(answer.gap(bound))
                times[name].append(answer.seconds)
                proven[name] += answer.proven_optimal
        label = f"P={world.publishers} b={world.bandwidth:g} M={world.machines} {world.rates}"
        rows.append(
            (
                label,
                *(f"{percent(np.mean(gaps[n]), 3)}, {proven[n]} of {SEEDS}" for n in gaps),
                *(seconds(float(np.mean(times[n]))) for n in times),
                f"{np.mean(times['link/ilp']) / np.mean(times['link/trim']):,.0f} x",
            )
        )
    columns = ["instance", "trim below bound, proven", "HiGHS below bound, proven", "trim", "HiGHS", "time ratio"]
    print_table(f"trim against HiGHS on the compact program, {limit_s:g} s limit, {SEEDS} seeds", columns, rows)


def _memory() -> None:
    """Peak memory of a process that generates ten million links, places and judges them."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        peak = pool.apply(_peak_mib)
    print_table(
        "10,000,000 links generated, placed by trim and judged", ["figure", "MiB"], [("peak memory", number(peak))]
    )


def _peak_mib() -> float:
    ask("link/trim", Problem(SIZES[10_000_000].make(0), "link"))
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def _timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def plain_greedy(problem: Problem) -> list[int]:
    """The baseline: Algorithm 1 written directly from the paper, with two heaps, link by link."""
    rate = problem.data_rate.tolist()
    waiting: list[list[int]] = [[] for _ in rate]
    for link, topic in enumerate(problem.topic.tolist()):
        waiting[topic].append(link)
    topics = [(-len(links), k) for k, links in enumerate(waiting) if links]
    brokers = [(-b, j) for j, b in enumerate(problem.bandwidth.tolist())]
    heapq.heapify(topics)
    heapq.heapify(brokers)
    answer = [-1] * len(problem.topic)
    while topics and brokers:
        _, k = heapq.heappop(topics)
        room, j = heapq.heappop(brokers)
        room, r = -room, rate[k]
        if room >= 2 * r:
            room -= r
            while room >= r and waiting[k]:
                answer[waiting[k].pop()] = j
                room -= r
            if waiting[k]:
                heapq.heappush(topics, (-len(waiting[k]), k))
        heapq.heappush(brokers, (-room, j))
    return answer
