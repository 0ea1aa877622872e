"""Topics at brokers, and how close those with a latency bound are to it: processing and network together.

A placement decides how many messages of each topic every broker processes. From these rates, the queueing model of
``predict`` gives the share of time in which each processor is busy, and the p90 latency of its topic. The worst-case
network latency of a whole topic at its broker (``NetworkByBroker``) is added to that. The *strain* of a broker is the
larger of two ratios, over its topics with a bound: latency to the bound, and busy time to the share that may be busy.
Above 1, a bound is expected to be missed.

Predictions are compared with measured latencies. If the topics of a broker are slower than predicted by a factor, which
other work on its machine may cause, predictions for this broker are multiplied by that factor (Khare et al., SEC'18,
IV-E: topics whose bound is missed are placed at another broker).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.model.key import Key
from trimtab.model.placement import UNPLACED
from trimtab.model.workload import PUB, SUB
from trimtab.place.wire import weights
from trimtab.predict.sets import Sets
from trimtab.predict.strain import model_of as latency_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.control.view import View
    from trimtab.model.workload import Floats, Rows
    from trimtab.predict.queueing import Queueing

__all__ = ["Hosting", "Miss", "latency_model"]

SLOWER: Final = 2.0  # measured over predicted latency below which the prediction is used unchanged
SLOWEST: Final = 50.0
NOTHING: Final = 1e-9  # messages/s
RARE: Final = 1e-3  # messages/s


@dataclass(frozen=True, eq=False)
class Hosting:
    """Rates of processed topics at brokers with the present placement, and what a key takes along when it moves."""

    view: View
    models: tuple[Queueing, ...]  # of the kinds of hardware
    kind: Rows  # (B,) kind of hardware of each broker
    headroom: float  # share of time in which a processor must not be busy
    topic: Rows  # (T,) row in the view's topics of each topic that is processed, or has a known network latency
    network: Floats  # (B, T) ms, the worst case of the topic at the broker; 0 where it is not known
    growth: Floats  # (T,) factor by which the rate of each topic will soon have grown, 1 or more
    rate: Floats  # (B, T) messages/s, with the growth
    key: Rows  # (P,) keys of these topics, sorted; a key has a row for each of its topics
    column: Rows  # (P,) topic
    amount: Floats  # (P,) messages/s of that topic that the key takes along, with the growth
    subscribers: Floats  # (T,) subscriptions at the broker with most of them: all, of a topic placed as a whole

    @classmethod
    def of(cls, view: View, model: Queueing, headroom: float) -> Hosting:
        workload = view.snapshot.workload
        processing = workload.topics.processing_ms
        present = np.zeros(len(workload.topics), bool) if processing is None else processing > 0.0
        present[view.network.topic] = True
        topic = np.flatnonzero(present).astype(np.int32)
        machines, kind = view.problem.machines_of(model.hardware)
        column = np.full(len(workload.topics), -1, np.int32)
        column[topic] = np.arange(len(topic))
        links = workload.links
        row = np.flatnonzero((links.role == PUB) & present[links.topic])
        growth = np.ones(len(workload.topics)) if view.snapshot.growth is None else view.snapshot.growth
        amount = (workload.topics.rate * growth)[links.topic[row]] * weights(workload)[row]
        at, of, key = view.carriers()[row], column[links.topic[row]], view.owner[row]
        network, idle = _network(view, column, len(topic))
        # A topic without messages is at its broker, too: its network latency counts there.
        at, of = np.concatenate([at, view.network.home]), np.concatenate([of, column[view.network.topic]])
        key, amount = np.concatenate([key, idle]), np.concatenate([amount, np.full(len(idle), RARE)])
        rate = np.zeros((len(view.brokers), len(topic)))
        placed = at != UNPLACED
        np.add.at(rate, (at[placed], of[placed]), amount[placed])
        owned = np.flatnonzero(key >= 0)
        owned = owned[np.argsort(key[owned], kind="stable")]
        models = tuple(model.on(machine) for machine in machines)
        return cls(
            view, models, kind, headroom, topic, network, growth[topic], rate, key[owned], of[owned], amount[owned],
            _subscribers(view, column, len(topic)),
        )  # fmt: skip

    @cached_property
    def present(self) -> Floats:
        """(B, T) messages/s now."""
        return self.rate / self.growth

    def at_present(self) -> Hosting:
        """The same without any growth of rates."""
        grown = self.growth[self.column]
        return replace(self, growth=np.ones_like(self.growth), rate=self.present, amount=self.amount / grown)

    def taken(self, key: int) -> Floats:
        """(T,) messages/s that the key takes along."""
        rows = slice(*np.searchsorted(self.key, [key, key + 1]).tolist())
        return np.bincount(self.column[rows], weights=self.amount[rows], minlength=len(self.topic)).astype(np.float64)

    @cached_property
    def bound_ms(self) -> Floats:
        """(T,) NaN for a topic without a bound."""
        bounds = self.view.snapshot.workload.topics.latency_ms
        return np.full(len(self.topic), np.nan) if bounds is None else bounds[self.topic]

    @cached_property
    def processing_ms(self) -> Floats:
        """(T,) CPU time of a message, 0 for a topic without a processor."""
        processing = self.view.snapshot.workload.topics.processing_ms
        return np.zeros(len(self.topic)) if processing is None else processing[self.topic]

    @cached_property
    def promised(self) -> bool:
        """Whether any of these topics has a bound."""
        return bool((~np.isnan(self.bound_ms)).any())

    @cached_property
    def names(self) -> list[str]:
        ids = self.view.snapshot.workload.topics.ids
        return [ids[int(row)] for row in self.topic]

    def rates(self, placement: Rows) -> Floats:
        """(B, T) with this placement instead of the present one."""
        rate = self.rate.copy()
        source, target = self.view.current[self.key], placement[self.key]
        for sign, broker in ((-1.0, source), (1.0, target)):
            row = np.flatnonzero((source != target) & (broker != UNPLACED))
            np.add.at(rate, (broker[row], self.column[row]), sign * self.amount[row])
        return np.maximum(rate, 0.0)

    def predicted(self, rate: Floats, broker: Rows | Sequence[int]) -> tuple[Floats, Floats]:
        """(n, T) p90 of processing in ms and (n, T) busy share, NaN where a topic is not processed. Row i is about a
        broker with the hardware of ``broker[i]`` that processes ``rate[i]``."""
        p90, use = self._modelled(rate, broker)
        return p90 * self.slower[np.asarray(broker, np.int64)][:, None], use

    def _modelled(self, rate: Floats, broker: Rows | Sequence[int]) -> tuple[Floats, Floats]:
        row = np.asarray(broker, np.int64)
        p90, use = np.full(rate.shape, np.nan), np.full(rate.shape, np.nan)
        for number, model in enumerate(self.models):
            chosen = np.flatnonzero(self.kind[row] == number)
            there = (rate[chosen] > NOTHING) & (self.processing_ms > 0.0)
            begin = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
            ms = np.broadcast_to(self.processing_ms, there.shape)[there]
            copies = np.broadcast_to(self.subscribers, there.shape)[there]
            busy, time = model.solve(Sets(begin, rate[chosen][there], ms, copies))
            at, column = np.nonzero(there)
            use[chosen[at], column] = busy
            p90[chosen[at], column] = model.latency(busy, time)
        return p90, use

    @cached_property
    def slower(self) -> Floats:
        """(B,) factor by which topics of a broker are slower than predicted, 1 where they are not."""
        factor = np.ones(len(self.view.brokers))
        if self.view.snapshot.p90_ms is None or not len(self.topic):
            return factor
        found = self.measured_ms / self._modelled(self.present, range(len(factor)))[0]
        for broker in range(len(factor)):
            here = found[broker, np.isfinite(found[broker])]
            ratio = float(np.median(here)) if len(here) else 1.0
            factor[broker] = min(ratio, SLOWEST) if ratio > SLOWER else 1.0
        return factor

    @cached_property
    def measured_ms(self) -> Floats:
        """(T,) measured p90 without the network's share, which is taken to be the worst case. NaN: not known."""
        measured = self.view.snapshot.p90_ms
        if measured is None:
            return np.full(len(self.topic), np.nan)
        network = np.where(self.rate > NOTHING, self.network, 0.0).max(axis=0, initial=0.0)
        left = measured[self.topic].astype(np.float64) - network
        return np.where(left > 0.0, left, np.nan)

    def idle_ms(self, topic: int) -> float:
        """The least latency of a topic: of rare messages at an otherwise empty broker of the fastest kind, and at the
        nearest one."""
        nearest = float(self.network[:, topic].min())
        if self.processing_ms[topic] == 0.0:
            return nearest
        rare = np.zeros((len(self.models), len(self.topic)))
        rare[:, topic] = RARE
        first = [int(np.flatnonzero(self.kind == kind)[0]) for kind in np.unique(self.kind)]
        return nearest + float(self._modelled(rare[: len(first)], first)[0][:, topic].min())

    def strain(self, rate: Floats, broker: Rows | Sequence[int]) -> Floats:
        """(n,) the strain of each row, 0 without a topic that has a bound."""
        return np.asarray(np.nan_to_num(self.strains(rate, broker), nan=0.0).max(axis=1, initial=0.0))

    def strains(self, rate: Floats, broker: Rows | Sequence[int]) -> Floats:
        """(n, T) of every topic with a bound."""
        p90, use = self.predicted(rate, broker)
        latency = np.nan_to_num(p90) + self.network[np.asarray(broker, np.int64)]
        strains = np.maximum(latency / self.bound_ms, np.nan_to_num(use) / (1.0 - self.headroom))
        return np.where(~np.isnan(self.bound_ms) & (rate > NOTHING), strains, np.nan)

    def missed(self, rate: Floats) -> list[Miss]:
        """Topics that are expected to miss their bound, the worst first; ``rate`` is of all brokers."""
        every = range(len(rate))
        strains, latency = self.strains(rate, every), np.nan_to_num(self.predicted(rate, every)[0]) + self.network
        found = [
            Miss(int(broker), int(topic), float(strains[broker, topic]), float(latency[broker, topic]))
            for broker, topic in np.argwhere(np.nan_to_num(strains, nan=0.0) > 1.0)
        ]
        return sorted(found, key=lambda miss: (-miss.strain, miss.broker, miss.topic))


def _network(view: View, column: Rows, topics: int) -> tuple[Floats, Rows]:
    """(B, T) network latencies, and the key of each topic that has one. A broker whose latency is not known is taken to
    be infinitely far."""
    latency = view.network
    network = np.zeros((len(view.brokers), topics))
    network[:, column[latency.topic]] = latency.worst_ms.T
    names = (view.snapshot.workload.topics.ids[int(row)] for row in latency.topic)
    return network, np.array([view.rows[Key("topic", name, "")] for name in names], np.int32)


def _subscribers(view: View, column: Rows, topics: int) -> Floats:
    """(T,) of each processed topic. Subscriptions that no broker carries yet are expected at one broker."""
    workload = view.snapshot.workload
    row = np.flatnonzero((workload.links.role == SUB) & (column[workload.links.topic] >= 0))
    count = np.zeros((len(view.brokers) + 1, topics))  # the last row: of UNPLACED
    np.add.at(count, (view.carriers()[row], column[workload.links.topic[row]]), weights(workload)[row])
    return np.asarray(np.maximum(count.max(axis=0), 1.0), np.float64)


@dataclass(frozen=True, slots=True)
class Miss:
    """A topic that is expected to miss its bound at a broker."""

    broker: int  # row of the view
    topic: int  # column of the hosting
    strain: float
    latency_ms: float  # p90 of processing, and worst case of the network
