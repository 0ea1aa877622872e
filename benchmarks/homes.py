"""Homes for clients: a million of them, and one client's change."""

from __future__ import annotations

import multiprocessing
import resource
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.cli.output import number, print_table, seconds
from trimtab.lab.answer import ask, warm_up
from trimtab.lab.worlds.bad import Bad
from trimtab.lab.worlds.reloc import RelocField
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.problem import Problem
from trimtab.place.client.homes import Homes
from trimtab.place.registry import policy

if TYPE_CHECKING:
    from collections.abc import Callable

MANY = Bad(subscribers=1_000_000)
CHANGES = 2_000
SEED = 0


def main() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:  # a separate process, to measure its memory
        pool.apply(_million)
    _one_change()


def _million() -> None:
    load = MANY.make(SEED)
    before = _peak_gib()
    unplaced = Problem(load, "client")
    near = policy("client/nearest").place(unplaced)
    placed = Problem(load, "client", near)
    rows = []
    for name, problem, task in (
        ("client/gsh", placed, "from scratch"), ("client/trim", placed, "with as few moves as possible"),
        ("client/trim", unplaced, "from scratch"),
    ):  # fmt: skip
        warm_up(name)
        answer = ask(name, problem, seed=SEED)
        moves = answer.judgement.moves
        rows.append(
            (
                name, task, seconds(answer.seconds), number(answer.judgement.load.level),
                f"{answer.judgement.load.cov:.6f}", f"{moves.units:,}" if moves else "-",
                f"{moves.least:,}" if moves else "-", f"{_peak_gib():.2f} GiB",
            )
        )  # fmt: skip
    print_table(
        f"{len(load.clients):,} subscribers, {len(load.links):,} subscriptions, {len(load.brokers)} brokers, one core; "
        f"the workload alone took {before:.2f} GiB at its making",
        ["policy", "placement", "took", "maximum load", "spread", "moves", "at least", "peak memory"],
        rows,
        left=(0, 1),
    )


def _peak_gib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def _one_change() -> None:
    rng = np.random.default_rng(SEED)
    load = Bad().make(SEED)
    problem = Problem(load, "client")
    live = Homes(problem, policy("client/gsh").place(problem))
    topics_of = [rng.choice(len(load.topics), 20, replace=False).tolist() for _ in range(CHANGES)]
    clients = rng.permutation(problem.units)[:CHANGES].tolist()
    rows = [
        ("load: a client joins", *_times(lambda n: live.join(topics_of[n]), CHANGES)),
        ("load: a client changes its subscriptions", *_times(lambda n: live.change(clients[n], topics_of[n]), CHANGES)),
        ("load: a client leaves", *_times(lambda n: live.leave(clients[n]), CHANGES)),
    ]
    field = RelocField().make(SEED)
    homes = policy("client/trim", objective="delay").place(Problem(field, "client")).broker
    delay_policy = policy("client/trim", objective="delay", effort=0.0)

    def joins(n: int) -> Any:
        before = homes.copy()
        before[n % len(homes)] = UNPLACED
        return delay_policy.place(Problem(field, "client", Placement("client", before)))

    rows.append(("delay: a client joins or has moved", *_times(joins, 200)))
    print_table(
        "one client's change: 10,000 clients and 10 brokers by load, about 730 and 16 by delay",
        ["change", "median", "slowest of 100"],
        rows,
    )


def _times(do: Callable[[int], Any], times: int) -> tuple[str, str]:
    do(0)  # compiles the kernels
    times_s = []
    for n in range(1, times):
        began = time.perf_counter()
        do(n)
        times_s.append(time.perf_counter() - began)
    return seconds(float(np.median(times_s))), seconds(float(np.quantile(times_s, 0.99)))
