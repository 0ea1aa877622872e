"""``client/trim`` by delay: a search that starts from the best placement of other policies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.model.judgement import TOLERANCE, Load
from trimtab.model.placement import UNPLACED, Placement
from trimtab.place.client.anneal import anneal, settle
from trimtab.place.client.bounds import least_delay
from trimtab.place.client.delays import Field
from trimtab.place.client.instance import Instance
from trimtab.place.client.otos import OtosCentroid
from trimtab.place.client.policy import nowhere
from trimtab.place.client.reloc import Reloc, members
from trimtab.place.client.simple import Nearest

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows
    from trimtab.place.client.trim import Trim

MOVES: Final = 800_000  # moves tried in all searches together
TRIES: Final = 8  # number of searches for small problems, where the starting point matters more
SMALL: Final = 200  # most clients of a small problem
HOT: Final = 0.4  # first temperature, as a share of the delay divided by the number of clients
COLD: Final = 0.01


def place(problem: Problem, knobs: Trim) -> Placement:
    """Place all clients. The problem must have at least one broker."""
    field = Field.of(problem)
    columns = (
        field.begin, field.topic, field.publishes, field.spreads, field.subscribes, field.needs, field.near,
        field.home_ms, field.server_ms, field.spool, field.rate, field.storage, field.compute, field.cloud_ms,
    )  # fmt: skip
    origin = nowhere(field.clients)
    starts: list[Rows] = []
    if problem.current is not None:
        origin = problem.current.broker
        new = np.flatnonzero(origin == UNPLACED).astype(np.int32)
        settled = np.where(origin == UNPLACED, field.home_ms.argmin(axis=1), origin).astype(np.int32)
        settle(*columns, settled, new)
        starts.append(settled)
    if problem.current is None or (knobs.budget is None and knobs.effort > 0.0):
        starts += [policy.homes(problem) for policy in (Nearest(), OtosCentroid(), Reloc())]
    most = np.full(field.servers, np.inf)
    if knobs.objective == "both":
        most, starts = _limited(problem, knobs, starts)
    allowed = field.clients if knobs.budget is None else int(knobs.budget * field.clients)
    begin, member = members(field)

    def search(start: Rows, steps: int, n: int = 0) -> tuple[Rows, float]:
        rng = np.random.default_rng((knobs.seed, n))
        return anneal(*columns, begin, member, start, origin, allowed, most, steps, HOT, COLD, rng)

    best, first = min((search(start, 0)[1], at) for at, start in enumerate(starts))
    home = starts[first]
    tries = TRIES if field.clients <= SMALL else 1
    for n in range(tries if field.clients and knobs.effort > 0.0 else 0):
        homes, value = search(starts[first], int(knobs.effort * MOVES / tries), n)
        if value < best:
            best, home = value, homes
        if knobs.stop.left_s() <= 0.0:
            break
    return Placement("client", home, least_delay(problem))


def _limited(problem: Problem, knobs: Trim, starts: list[Rows]) -> tuple[Floats, list[Rows]]:
    """The load limit of every broker, derived from the least maximum load, and the starts within these limits."""
    instance = Instance.of(problem)
    level = replace(knobs, objective="load").place(problem).broker
    least = Load(instance.counts(level)[1], instance.speed).level
    most = knobs.load_limit * least * instance.speed * (1.0 + TOLERANCE)
    return most, [level, *(start for start in starts if (instance.counts(start)[1] <= most).all())]
