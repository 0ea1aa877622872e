"""Balancing: topics on a given number of brokers so that the highest strain is low, by exchanges between pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.place.topic.instance import NONE, capacity

if TYPE_CHECKING:
    from trimtab.model.workload import Floats
    from trimtab.place.stop import Stop
    from trimtab.place.topic.instance import Instance
    from trimtab.place.topic.policy import Groups
    from trimtab.place.topic.strain import Strain
    from trimtab.predict.sets import Ints

MOST_PAIRS: Final = 256  # that are improved at a time
MOST_ROUNDS: Final = 100_000
GAIN: Final = 1e-4  # least improvement of a pair's highest strain


class Balance:
    """Some brokers, the topics on each, and their strains."""

    def __init__(self, instance: Instance, strain: Strain, brokers: list[int], seed: int) -> None:
        self.instance, self.oracle = instance, strain
        self.rng = np.random.default_rng(seed)
        self.brokers = np.array(brokers, np.int64)
        self.kind = instance.kind[self.brokers]
        self.members = np.full((len(brokers), instance.most), NONE, np.int64)
        self.strain = np.zeros(len(brokers))
        service = np.array([machine.service_ms(instance.processing_ms) for machine in instance.machines])
        self.work = (instance.rate * service / 1000.0).T  # (T, kinds) cores
        self.can = np.array([capacity(machine, instance.most) for machine in instance.machines])[self.kind]

    @classmethod
    def spread(cls, instance: Instance, strain: Strain, brokers: list[int], seed: int) -> Balance:
        """The topic with most work goes first, each to the broker with the lowest relative load that has a free place:
        longest processing time first (Graham, 1969) with a limit on the number."""
        balance = cls(instance, strain, brokers, seed)
        balance.add(instance.topics)
        return balance

    @classmethod
    def of(cls, instance: Instance, strain: Strain, groups: Groups, seed: int) -> Balance:
        """As these groups of topics are."""
        balance = cls(instance, strain, [broker for broker, _ in groups], seed)
        for row, (_, topics) in enumerate(groups):
            balance.members[row, : len(topics)] = topics
        balance.judge(np.arange(len(groups)))
        return balance

    @property
    def complete(self) -> bool:
        """Whether every topic has a broker."""
        return int((self.members >= 0).sum()) == len(self.instance.topics)

    def excess(self) -> float:
        """Mean strain above 1."""
        return float(np.maximum(self.strain - 1.0, 0.0).mean())

    def add(self, topics: Ints) -> None:
        """Put topics on brokers with free places, and compute the strains of these brokers."""
        load = self.load()
        count = (self.members >= 0).sum(axis=1)
        heaviest = self.work[topics].max(axis=1)
        changed = set()
        for topic in topics[np.argsort(-heaviest, kind="stable")].tolist():
            carries = self.instance.alone[topic, self.kind] & (count < self.instance.most)
            if not carries.any():
                continue
            at = int(np.where(carries, load, np.inf).argmin())
            self.members[at, count[at]] = topic
            count[at] += 1
            load[at] += self.work[topic, self.kind[at]] / self.can[at]
            changed.add(at)
        self.judge(np.array(sorted(changed), np.int64))

    def load(self) -> Floats:
        """(m,) work of each broker as a share of what it can do."""
        there = self.members >= 0
        work = np.where(there, self.work[self.members, self.kind[:, None]], 0.0).sum(axis=1)
        return np.asarray(work / self.can)

    def judge(self, rows: Ints) -> None:
        """Compute strains anew."""
        self.strain[rows] = self._strains(self.members[rows], rows)

    def _strains(self, members: Ints, rows: Ints) -> Floats:
        """Of sets on the brokers ``rows``."""
        kinds = self.kind[rows]
        if len(self.instance.machines) == 1:
            return self.oracle.of(members, 0)
        strain = np.zeros(len(members))
        for kind in np.unique(kinds).tolist():
            same = kinds == kind
            strain[same] = self.oracle.of(members[same], kind)
        return strain

    def relieve(self, target: float, patience: int, stop: Stop, rounds: int = MOST_ROUNDS) -> bool:
        """Exchange topics until no strain is above ``target``. False after ``patience`` rounds without progress."""
        idle, least = 0, np.inf
        while (self.strain > target).any():
            if idle >= patience or not rounds or stop.left_s() <= 0.0:
                return False
            rounds -= 1
            self.exchange(target)
            excess = float(np.maximum(self.strain - target, 0.0).sum())
            idle = idle + 1 if excess > least * (1.0 - GAIN) else 0
            least = min(least, excess)
        return True

    def exchange(self, target: float) -> None:
        """One round: each of the most strained brokers exchanges topics with one other broker, if both then have less
        strain than the more strained one had."""
        hot = np.flatnonzero(self.strain > target)
        hot = hot[np.argsort(-self.strain[hot], kind="stable")]
        others = np.setdiff1d(np.arange(len(self.brokers)), hot)
        hot = hot[: min(MOST_PAIRS, len(self.brokers) // 2)]
        if len(others) < len(hot):
            others = np.concatenate([others, np.setdiff1d(np.arange(len(self.brokers)), np.concatenate([hot, others]))])
        partner = self.rng.permutation(others)[: len(hot)]
        hot = hot[: len(partner)]
        if len(hot):
            self._exchange_pairs(hot, partner)

    def _exchange_pairs(self, hot: Ints, cool: Ints) -> None:
        pair, i, j = self._candidates(hot, cool)
        given, taken = self.members[hot[pair], i], self.members[cool[pair], j]
        of_hot = self.members[hot[pair]]
        of_hot[np.arange(len(pair)), i] = taken
        before = np.maximum(self.strain[hot], self.strain[cool]) - GAIN
        at_hot = self._strains(of_hot, hot[pair])
        good = np.flatnonzero(at_hot < before[pair])
        pair, at_hot, of_hot, j, given = pair[good], at_hot[good], of_hot[good], j[good], given[good]
        of_cool = self.members[cool[pair]]
        of_cool[np.arange(len(pair)), j] = given
        at_cool = self._strains(of_cool, cool[pair])
        highest = np.maximum(at_hot, at_cool)
        order = np.lexsort((highest, pair))
        first = np.ones(len(order), np.bool_)
        first[1:] = pair[order][1:] != pair[order][:-1]
        best = order[first]
        best = best[highest[best] < before[pair[best]]]
        for rows, members, strain in ((hot, of_hot, at_hot), (cool, of_cool, at_cool)):
            self.members[rows[pair[best]]] = members[best]
            self.strain[rows[pair[best]]] = strain[best]

    def _candidates(self, hot: Ints, cool: Ints) -> tuple[Ints, Ints, Ints]:
        """Pairs, places of a topic of the hot broker, and places of a lighter or no topic of the cool broker."""
        most = self.instance.most
        pair, i, j = (part.ravel() for part in np.indices((len(hot), most, most)))
        given, taken = self.members[hot[pair], i], self.members[cool[pair], j]
        free = (self.members[cool] >= 0).argmin(axis=1)  # the first free place, if there is one
        work = np.where(taken >= 0, self.work[taken, self.kind[hot[pair]]], 0.0)
        less = work < self.work[given, self.kind[hot[pair]]]
        useful = (given >= 0) & less & ((taken >= 0) | (j == free[pair]))
        return pair[useful], i[useful], j[useful]

    def groups(self) -> Groups:
        return [
            (broker, members[members >= 0].tolist())
            for broker, members in zip(self.brokers.tolist(), self.members, strict=True)
            if (members >= 0).any()
        ]
