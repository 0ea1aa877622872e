"""Topics that are too much for every broker: what would make them fit, and their partitions by publisher.

Khare et al. (SEC'18, III-D) assume that every topic fits on an empty broker, and that other topics are split before;
their code divides the publishers of a topic among partitions, and every subscriber receives all partitions. Where the
copies for subscribers are too much, a topic can be replicated instead: every replica has all messages and a part of the
subscribers (IV-C). Trimtab says how many replicas that takes, but does not make them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.model.ids import Ids
from trimtab.model.workload import PUB, Links, Topics, Workload, columns_of
from trimtab.place.topic.instance import Instance, carries

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats
    from trimtab.place.topic.instance import Bools
    from trimtab.predict.sets import Ints

HALVINGS: Final = 40  # of the interval in which the highest rate lies
SEPARATOR: Final = "#"  # between a topic's name and the number of its partition


@dataclass(frozen=True, slots=True)
class Misfit:
    """A topic that no empty broker carries within its bound."""

    topic: str
    row: int
    rate: float  # messages/s
    most: float  # messages/s of this topic that the best broker carries
    largest: float  # messages/s of its largest publisher
    subscribers: int
    most_subscribers: int  # that the best empty broker serves with all messages of this topic; 0: not even one

    @property
    def divisible(self) -> bool:
        return self.largest <= self.most

    def __str__(self) -> str:
        start = f"topic '{self.topic}' has {self.rate:.4g} messages/s, but an empty broker carries {self.most:.4g}"
        ways = ["use faster brokers", "raise its bound"]
        if self.divisible:
            ways.insert(0, "split it by publishers (trimtab plan --split DIR)")
        if 0 < self.most_subscribers < self.subscribers:  # copies of messages are the reason
            start += f" to {self.subscribers:,} subscribers, or all messages to {self.most_subscribers:,} of them"
            ways.insert(0, f"publish it as {self.replicas:,} topics with all messages and at most "
                           f"{self.most_subscribers:,} subscribers each")  # fmt: skip
        if not self.divisible:
            start += f", and one publisher alone sends {self.largest:.4g}"
        return f"{start}: {', '.join(ways[:-1])} or {ways[-1]}"

    @property
    def replicas(self) -> int:
        """Topics with all messages and a part of the subscribers each, of which each fits on an empty broker; 0 if no
        number of them does."""
        return -(-self.subscribers // self.most_subscribers) if self.most_subscribers else 0

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic, "rate": self.rate, "most": self.most, "largest_publisher": self.largest,
            "divisible": self.divisible, "subscribers": self.subscribers, "most_subscribers": self.most_subscribers,
            "replicas": self.replicas,
        }  # fmt: skip


def misfits(problem: Problem) -> list[Misfit]:
    """Topics that are left unplaced for this reason, with the queueing model of the problem's hardware."""
    instance = Instance.of(problem, 1, None)
    if not len(instance.kind):
        return []
    rows = np.setdiff1d(np.arange(len(instance.rate)), instance.topics)
    most, served = _highest_rates(instance, rows), _most_subscribers(problem, instance, rows)
    names, copies = problem.workload.topics.ids, problem.workload.copies
    return [
        Misfit(
            names[int(row)], int(row), float(instance.rate[row]), float(rate), max(_publishers(problem, int(row))),
            int(copies[row]), int(subscribers),
        )
        for row, rate, subscribers in zip(rows, most, served, strict=True)
    ]  # fmt: skip


def _highest_rates(instance: Instance, rows: Ints) -> Floats:
    """Messages/s of each of these topics up to which some empty broker keeps its bound."""
    low, high = np.zeros(len(rows)), instance.rate[rows].astype(np.float64)
    for _ in range(HALVINGS):
        rate = (low + high) / 2.0
        kept = _carried(instance, rows, rate, instance.processing_ms[rows])
        low, high = np.where(kept, rate, low), np.where(kept, high, rate)
    return low


def _most_subscribers(problem: Problem, instance: Instance, rows: Ints) -> Floats:
    """Subscribers of each of these topics up to which some empty broker keeps its bound, at its full rate."""
    processing = problem.workload.topics.need("processing_ms", "CPU time of a message")[rows]
    low, high = np.zeros(len(rows)), problem.workload.copies[rows]
    while (high - low > 1.0).any():
        subscribers = np.ceil((low + high) / 2.0)
        longer = problem.hardware.for_one_subscriber(processing, subscribers)
        kept = _carried(instance, rows, instance.rate[rows], longer)
        low, high = np.where(kept, subscribers, low), np.where(kept, high, subscribers)
    return low


def _carried(instance: Instance, rows: Ints, rate: Floats, processing_ms: Floats) -> Bools:
    """Whether some empty broker keeps the bound of each of these topics at this rate and processing time."""
    kept = np.zeros(len(rows), np.bool_)
    for kind in np.unique(instance.kind).tolist():
        kept |= carries(instance.machines[kind], rate, processing_ms, instance.bound_ms[rows])
    return kept


def _publishers(problem: Problem, topic: int) -> list[float]:
    """Messages/s of each publisher: one a second each, if the workload has no publishers of the topic."""
    workload = problem.workload
    links, rate = workload.links, float(workload.topics.rate[topic])
    rows = np.flatnonzero((links.topic == topic) & (links.role == PUB))
    if not len(rows):
        count = max(1, round(rate))
        return [rate / count] * count
    share = np.ones(len(rows)) if links.weight is None else links.weight[rows]
    return [float(each) for each in rate * share / max(float(share.sum()), 1e-300)]


def split(problem: Problem) -> Workload:
    """The workload with partitions instead of topics that are too much for every broker."""
    found = misfits(problem)
    for misfit in found:
        if not misfit.divisible:
            raise BadInput(str(misfit))
    parts = {misfit.row: _divided(_publishers(problem, misfit.row), misfit.most) for misfit in found}
    return _partitioned(problem.workload, parts)


def _divided(publishers: list[float], most: float) -> list[list[int]]:
    """Publishers in the fewest groups that first fit decreasing finds, none with more than ``most`` messages/s.

    They are then spread evenly over as many groups, if all stay below ``most``: a group at the highest rate that a
    broker carries by prediction is often out of its bound in a simulation.
    """
    groups: list[list[int]] = []
    sums: list[float] = []
    for publisher in sorted(range(len(publishers)), key=lambda each: -publishers[each]):
        rate = publishers[publisher]
        at = next((group for group, total in enumerate(sums) if total + rate <= most * (1.0 + 1e-9)), len(groups))
        if at == len(groups):
            groups.append([])
            sums.append(0.0)
        groups[at].append(publisher)
        sums[at] += rate
    even = _spread(publishers, len(groups))
    return even if max(sum(publishers[each] for each in group) for group in even) <= most * (1.0 + 1e-9) else groups


def _spread(publishers: list[float], count: int) -> list[list[int]]:
    """Publishers in so many groups, the largest first, each to the group with the lowest rate so far."""
    groups: list[list[int]] = [[] for _ in range(count)]
    sums = [0.0] * count
    for publisher in sorted(range(len(publishers)), key=lambda each: -publishers[each]):
        at = sums.index(min(sums))
        groups[at].append(publisher)
        sums[at] += publishers[publisher]
    return groups


def _partitioned(workload: Workload, parts: dict[int, list[list[int]]]) -> Workload:
    """Topics that are divided come last, partition by partition."""
    whole = np.setdiff1d(np.arange(len(workload.topics)), list(parts))
    origin = np.concatenate([whole, *(np.full(len(groups), row) for row, groups in parts.items())]).astype(np.int64)
    names = [workload.topics.ids[int(row)] for row in whole]
    names += [
        f"{workload.topics.ids[row]}{SEPARATOR}{number + 1}"
        for row, groups in parts.items() for number in range(len(groups))
    ]  # fmt: skip
    links = workload.links
    weight = np.ones(len(links)) if links.weight is None else links.weight
    share = np.ones(len(origin))
    new: list[tuple[int, int]] = []  # partition, link
    at = {int(row): place for place, row in enumerate(whole)}
    place = len(whole)
    for row, groups in parts.items():
        publishes = np.flatnonzero((links.topic == row) & (links.role == PUB))
        receives = np.flatnonzero((links.topic == row) & (links.role != PUB))
        total = float(weight[publishes].sum()) if len(publishes) else float(sum(len(group) for group in groups))
        for number, group in enumerate(groups):
            mine = publishes[group] if len(publishes) else publishes
            share[place + number] = (float(weight[mine].sum()) if len(publishes) else len(group)) / max(total, 1e-300)
            new += [(place + number, int(link)) for link in (*mine, *receives)]
        place += len(groups)
    kept = np.flatnonzero(~np.isin(links.topic, list(parts)))
    link = np.concatenate([kept, [each for _, each in new]]).astype(np.int64)
    topic = np.concatenate([[at[int(row)] for row in links.topic[kept]], [each for each, _ in new]]).astype(np.int32)
    columns = {spec.name: getattr(workload.topics, spec.name) for spec in columns_of(Topics)}
    columns = {name: None if values is None else values[origin] for name, values in columns.items()}
    columns["rate"] = workload.topics.rate[origin] * share
    own = None if links.weight is None else np.where(
        links.role[link] == PUB, weight[link] / np.maximum(share[topic], 1e-300), weight[link]
    )  # fmt: skip
    moved = Links(topic, links.client[link], links.role[link], own)
    return replace(workload, topics=Topics(Ids(names), **columns), links=moved)
