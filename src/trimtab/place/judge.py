"""The judge: computes all figures of a placement, whichever policy made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trimtab.model.judgement import TOLERANCE, Delay, Judgement, Load, Moves, Violation
from trimtab.model.owners import link_owners
from trimtab.model.placement import UNPLACED
from trimtab.model.workload import PUB, SUB
from trimtab.place.client.bounds import least_moves
from trimtab.place.client.delays import Field, has_delays
from trimtab.place.topic.measured import network_latency_of
from trimtab.place.topic.simulated import latency_of
from trimtab.place.wire import Traffic

if TYPE_CHECKING:
    from trimtab.model.key import RoutingTable
    from trimtab.model.placement import Placement
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows, Workload


def judge(problem: Problem, placement: Placement) -> Judgement:
    """All figures of ``placement``, from the placement and the workload alone.

    O(L log L) time for L links, and about 25 bytes of memory a link. A placement of topics with processing times is
    also simulated, at some milliseconds a broker.
    """
    problem.refuse_unless_mine(placement)
    carrier = carriers(problem, placement)
    carried = carrier != UNPLACED
    topic, broker = (problem.topic, carrier) if carried.all() else (problem.topic[carried], carrier[carried])
    outgoing = problem.data_rate[topic]
    load: Floats = np.bincount(broker, weights=outgoing, minlength=problem.brokers).astype(np.float64)
    load += incoming(problem, placement, topic, broker)
    served = int(np.count_nonzero(placement.broker != UNPLACED))
    return Judgement(
        received=float(outgoing.sum()),
        offered=float(problem.data_rate[problem.topic].sum()),
        brokers_used=int(np.count_nonzero(np.bincount(placement.broker + 1, minlength=problem.brokers + 1)[1:])),
        placed=served,
        unplaced=problem.units - served,
        violations=_exceeded(problem.workload, "bandwidth", load, problem.bandwidth),
        load=Load(load, problem.speed if problem.unit == "client" else None),
        wire=Load(_wire(problem, placement, carrier), problem.speed if problem.unit == "client" else None),
        moves=_moves(problem, placement, load),
        delay=_delay(problem, placement),
        latency=latency_of(problem, placement),
        network=network_latency_of(problem, placement),
    )


def judge_routing(workload: Workload, routing: RoutingTable) -> Judgement:
    """All figures of a fleet whose topics are placed by different units."""
    keys = list(routing.brokers)
    rows = workload.brokers.ids.find([routing.brokers[key] or None for key in keys])
    owner = link_owners(workload, routing, keys)
    carrier = np.where(owner >= 0, rows[owner], UNPLACED).astype(np.int32) if len(keys) else owner
    traffic, brokers = Traffic.of(workload), len(workload.brokers)
    subscribes = workload.links.role == SUB
    wire = traffic.wire(carrier, brokers).total
    load = traffic.wire(np.where(subscribes, carrier, UNPLACED).astype(np.int32), brokers).total
    received = traffic.delivered[workload.links.topic] * np.where(subscribes, traffic.weight, 0.0)
    bandwidth = workload.brokers.bandwidth
    limit = np.full(brokers, np.inf) if bandwidth is None else bandwidth
    return Judgement(
        received=float(received[carrier != UNPLACED].sum()),
        offered=float(received.sum()),
        brokers_used=len(set(rows[rows != UNPLACED].tolist())),
        placed=int(np.count_nonzero(rows != UNPLACED)),
        unplaced=int(np.count_nonzero(rows == UNPLACED)),
        violations=_exceeded(workload, "bandwidth", wire, limit),
        load=Load(load),
        wire=Load(wire),
    )


def carriers(problem: Problem, placement: Placement) -> Rows:
    """The broker of every subscription, for placements of any unit."""
    if placement.unit == "topic":
        return placement.broker[problem.topic]
    if placement.unit == "client":
        return placement.broker[problem.client]
    return placement.broker


def _wire(problem: Problem, placement: Placement, carrier: Rows) -> Floats:
    """The wire load of every broker's server. Publishers of topics placed by link have no broker: their data enters
    from outside."""
    workload = problem.workload
    links = workload.links
    everywhere: Rows = np.full(len(links), UNPLACED, np.int32)
    everywhere[links.role == SUB] = carrier
    publishes = links.role == PUB
    if placement.unit != "link" and publishes.any():
        rows = links.topic if placement.unit == "topic" else links.client
        everywhere[publishes] = placement.broker[rows[publishes]]
    return Traffic.of(workload).wire(everywhere, problem.brokers).total


def incoming(problem: Problem, placement: Placement, topic: Rows, broker: Rows) -> Floats:
    """``sum_k d[k] z[j,k]``: one copy of a topic enters each broker that carries it for a subscriber.

    A broker that hosts a whole topic takes it in even without subscribers.
    """
    if placement.unit == "topic":
        hosted = np.flatnonzero(placement.broker != UNPLACED)
        enters, topics = placement.broker[hosted], hosted
    else:
        count = max(len(problem.data_rate), 1)
        pairs = np.sort(broker.astype(np.int64) * count + topic)
        pairs = pairs[np.diff(pairs, prepend=-1) != 0]
        enters, topics = pairs // count, pairs % count
    return np.bincount(enters, weights=problem.data_rate[topics], minlength=problem.brokers).astype(np.float64)


def _moves(problem: Problem, placement: Placement, load: Floats) -> Moves | None:
    if problem.current is None:
        return None
    moved = placement.broker != problem.current.broker
    owner = {"topic": problem.topic, "client": problem.client, "link": np.arange(len(problem.topic))}[problem.unit]
    data = float(problem.data_rate[problem.topic][moved[owner]].sum())
    least = 0
    if problem.unit == "client":
        least = least_moves(problem, Load(load, problem.speed).level)
    return Moves(int(np.count_nonzero(moved)), data, least)


def _delay(problem: Problem, placement: Placement) -> Delay | None:
    if problem.unit != "client" or not has_delays(problem) or (placement.broker == UNPLACED).any():
        return None
    field = Field.of(problem)
    home = placement.broker
    owner = np.repeat(np.arange(field.clients), np.diff(field.begin))
    at = home[owner]
    shape = (len(field.spool), field.servers)
    pair = field.topic.astype(np.int64) * field.servers + at
    size = shape[0] * shape[1]
    publishers = np.bincount(pair, weights=field.needs, minlength=size).reshape(shape)
    subscribers = np.bincount(pair, weights=field.subscribes, minlength=size).reshape(shape)
    spreads = np.bincount(pair, weights=field.spreads, minlength=size).reshape(shape)
    storage = field.spool @ (publishers > 0)
    compute = field.spool @ publishers
    with np.errstate(divide="ignore", invalid="ignore"):
        kept = np.minimum(np.where(storage > field.storage, field.storage / storage, 1.0),
                          np.where(compute > field.compute, field.compute / compute, 1.0))  # fmt: skip
    weight = np.bincount(at, weights=field.publishes, minlength=field.servers)
    ways = (spreads * (subscribers @ field.server_ms)).sum(axis=0)
    near = float((field.near * field.home_ms[np.arange(field.clients), home]).sum())
    far = float((2.0 * field.cloud_ms * (1.0 - kept) * weight + kept * ways).sum())
    return Delay(near, far, kept, storage, compute)


def _exceeded(workload: Workload, resource: str, used: Floats, limit: Floats) -> tuple[Violation, ...]:
    names = workload.brokers.ids
    over = np.flatnonzero(used > limit * (1.0 + TOLERANCE))
    return tuple(Violation(resource, names[int(j)], float(used[j]), float(limit[j])) for j in over)
