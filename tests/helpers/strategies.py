"""Made-up problems for property tests, and a second opinion on what a placement does."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import strategies as st

from trimtab.model.coordinates import Coordinates
from trimtab.model.ids import Ids
from trimtab.model.rtts import Rtts
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload

if TYPE_CHECKING:
    from trimtab.model.problem import Problem

whole = st.integers(0, 12).map(float)
real = st.floats(0.0, 12.0, allow_subnormal=False)


def workload(rate, bandwidth, subscriptions, clients=None, publications=(), network=0) -> Workload:
    """A workload from plain lists; ``subscriptions`` and ``publications`` are (topic, client) pairs.

    ``network`` is the dimension of its network coordinates, of which some are unknown; 0: none.
    """
    pairs = [*subscriptions, *publications]
    role = [SUB] * len(subscriptions) + [PUB] * len(publications)
    count = clients if clients is not None else max((c for _, c in pairs), default=-1) + 1
    topic, client = np.array(pairs, np.int32).reshape(-1, 2).T
    draw = np.random.default_rng(len(pairs) * 100 + len(rate) * 10 + len(bandwidth))
    place, site = draw.uniform(0, 25, (2, count)), draw.uniform(0, 25, (2, len(bandwidth)))
    limit = {"storage": draw.integers(0, 20, len(bandwidth)), "compute": draw.integers(0, 40, len(bandwidth))}
    spool = draw.integers(0, 9, len(rate))
    processing, bound = draw.choice([0.0, 5.0, 20.0, 40.0], len(rate)), draw.choice([300.0, 1000.0, np.nan], len(rate))
    table = {size: coordinates(draw, size, network) if network else None for size in {count, len(bandwidth)}}
    return Workload(
        Topics(Ids.numbered("t", len(rate)), rate, spool=spool, processing_ms=processing, latency_ms=bound),
        Clients(Ids.numbered("c", count), x_km=place[0], y_km=place[1], coordinate=table[count]),
        Brokers(Ids.numbered("b", len(bandwidth)), bandwidth, x_km=site[0], y_km=site[1],
                coordinate=table[len(bandwidth)], **limit),
        Links(topic, client, np.array(role, np.int8)),
        measured(draw, count, len(bandwidth)) if network > 1 else None,
    )  # fmt: skip


def coordinates(draw: np.random.Generator, nodes: int, dimensions: int) -> Coordinates:
    """Latencies of up to some hundred ms; one node in eight is unknown."""
    point, height = draw.normal(0, 150, (nodes, dimensions)), draw.exponential(20, nodes)
    unknown = draw.random(nodes) < 1 / 8
    point[unknown], height[unknown] = np.nan, np.nan
    return Coordinates(point, height)


def measured(draw: np.random.Generator, clients: int, brokers: int) -> Rtts:
    """About one pair in four."""
    times = draw.exponential(100, (clients, brokers))
    return Rtts.matrix(np.where(draw.random((clients, brokers)) < 1 / 4, times, np.nan))


@st.composite
def workloads(draw, topics=6, clients=5, brokers=4) -> Workload:
    """Small and odd: rates and bandwidths may be zero, whole or real, brokers unequal, some links publish, some clients
    and brokers have network coordinates and measured round-trip times."""
    number = draw(st.sampled_from([whole, real]))
    rate = draw(st.lists(number, min_size=0, max_size=topics))
    bandwidth = draw(st.lists(number.map(lambda b: 4 * b), min_size=0, max_size=brokers))
    many = draw(st.integers(1, clients))
    pairs = st.tuples(st.integers(0, max(len(rate) - 1, 0)), st.integers(0, many - 1))
    subscriptions = draw(st.lists(pairs, unique=True, max_size=20)) if rate else []
    publications = draw(st.lists(pairs, unique=True, max_size=4)) if rate else []
    return workload(rate, bandwidth, subscriptions, many, publications, draw(st.sampled_from([0, 1, 3])))


def levels(problem: Problem, home) -> float:
    """The highest load for its strength of a client placement, straight from its definition."""
    carrier = [home[c] for c in problem.client]
    load = loads(problem, carrier)
    return max((load[j] / problem.speed[j] if problem.speed[j] else np.inf for j in set(carrier) if load[j]), default=0)


def mean_delay(problem: Problem, home) -> float:
    """Tanaka's Y, publication by publication, subscriber by subscriber."""
    load, ms, cloud = problem.workload, problem.delays.ms_per_km, problem.delays.cloud_ms
    links = list(zip(load.links.topic.tolist(), load.links.client.tolist(), load.links.role.tolist(), strict=True))
    pubs, subs = ([(k, c) for k, c, r in links if r == role] for role in (PUB, SUB))
    place = np.stack([load.clients.x_km, load.clients.y_km], 1)
    site = np.stack([load.brokers.x_km, load.brokers.y_km], 1)
    theta = []
    for j in range(problem.brokers):
        here = [k for k, c in pubs if home[c] == j]
        stored, busy = sum(load.topics.spool[k] for k in set(here)), sum(load.topics.spool[k] for k in here)
        kept = 1.0 if stored <= load.brokers.storage[j] else load.brokers.storage[j] / stored
        theta.append(min(kept, 1.0 if busy <= load.brokers.compute[j] else load.brokers.compute[j] / busy))
    total = weight = 0.0
    for k, c in pubs:
        others = [other for topic, other in subs if topic == k and other != c]
        if not others:
            continue
        often = load.topics.rate[k] / sum(topic == k for topic, _ in pubs)
        at = home[c]
        took = 0.0
        for other in others:
            to = home[other]
            between = theta[at] * ms * np.hypot(*(site[at] - site[to])) + 2 * cloud * (1 - theta[at])
            took += ms * np.hypot(*(place[c] - site[at])) + between + ms * np.hypot(*(place[other] - site[to]))
        total += often * took / len(others)
        weight += often
    return total / weight if weight else 0.0


def loads(problem: Problem, broker) -> list[float]:
    """``sum_k d[k] (z[j,k] + n[j,k])`` of a link placement, straight from its definition."""
    total = []
    for j in range(problem.brokers):
        carried = [int(problem.topic[s]) for s in range(len(broker)) if broker[s] == j]
        total.append(sum(problem.data_rate[k] * (carried.count(k) + 1) for k in set(carried)))
    return total


def most_data(problem: Problem) -> float:
    """The most data any link placement can carry, by trying all counts: for very small problems only."""
    rate, bandwidth = problem.data_rate, problem.bandwidth
    degree = np.bincount(problem.topic, minlength=len(rate))
    splits = [[split for split in product(range(d + 1), repeat=problem.brokers) if sum(split) <= d] for d in degree]
    best = 0.0
    for choice in product(*splits):
        count = np.array(choice).reshape(len(rate), problem.brokers)
        if (rate @ (count + (count > 0)) <= bandwidth * (1 + 1e-12)).all():
            best = max(best, float(rate @ count.sum(axis=1)))
    return best
