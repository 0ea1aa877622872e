"""``trim``: one model for every number of topics: the queueing structure, corrected by boosted trees.

Structure (see ``queueing``) and correction are both monotone: a topic that is added, or a rate that rises, never lowers
a prediction. The logarithm of p90, in times of one message, is

    KEPT * structure + trees(features),

where the trees rise with every feature that grows with load, the structure's own answer among them. So they can take
back at most the part ``1 - KEPT`` of what the structure rises by. All features but one are ratios, so that trees
learned on one kind of hardware also correct the structure of another.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.errors import BadInput
from trimtab.predict.fit import FEW, FOLDS, LEAST_SETS, fitted
from trimtab.predict.queueing import DEFAULT_SPREAD, Queueing
from trimtab.predict.spread import Spread
from trimtab.predict.trees import Growth, Trees

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from trimtab.model.hardware import Hardware
    from trimtab.model.workload import Floats
    from trimtab.predict.samples import Samples
    from trimtab.predict.sets import Ints, Sets

    Group = tuple[int, bool]  # number of topics, and whether a worker of the set cannot keep up

KEPT: Final = 0.25  # share of the structure's logarithm that trees cannot take back
FEATURES: Final = ("structure", "use", "slowdown", "other_load", "other_use", "busiest_other", "topics", "message")
RISING: Final = tuple(name != "message" for name in FEATURES)  # the time of one message does not change with load
FOR_STRUCTURE: Final = 1000  # sets that the structure is fitted to, at most: it has some twenty parameters
FOR_TREES: Final = 400  # topics to grow trees on, at least


@dataclass(frozen=True, slots=True)
class Trim:
    """Which of structure alone, the trees of ``source`` and trees of its own a model has, cross-validation decides."""

    name: ClassVar[str] = "trim"
    summary: ClassVar[str] = "one model for every number of topics: queueing structure and a learned correction"

    source: TrimModel | None = None  # of similar hardware, to be adapted; its trees may serve again
    prior: Hardware | None = None  # otherwise; that of the samples if None
    growth: Growth = field(default_factory=lambda: Growth(rounds=120, leaves=32))

    def refuse_too_few(self, sizes: Ints) -> None:
        if len(sizes) < LEAST_SETS:
            raise BadInput(f"trim needs {LEAST_SETS} measured sets or more, but has {len(sizes)}")

    def fit(self, samples: Samples, *, seed: int = 0) -> TrimModel:
        self.refuse_too_few(samples.sets.sizes)
        structure = self._structure(samples, seed)
        candidates = ["structure"] + ["source"] * bool(self.source and self.source.trees)
        if len(samples.p90_ms) >= FOR_TREES:
            candidates.append("grown")
        expected = self._cross_validated(samples, structure, candidates, seed)
        target = np.log(samples.p90_ms)
        chosen = min(candidates, key=lambda each: float(np.abs(np.log(expected[each]) - target).mean()))
        trees = self._trees(chosen, structure, samples, seed)
        spread, by_size, by_group = _spreads(
            samples.sets, structure.use(samples.sets), target - np.log(expected[chosen])
        )
        return TrimModel(replace(structure, spread=spread), trees, int(samples.sets.sizes.max()), by_size, by_group)

    def _structure(self, samples: Samples, seed: int) -> Queueing:
        prior = self.source.structure if self.source else self.prior
        if len(samples) > FOR_STRUCTURE:
            rows = np.random.default_rng((seed, 1)).permutation(len(samples))[:FOR_STRUCTURE]
            samples = samples.take(np.sort(rows))
        return fitted(samples, prior)

    def _trees(self, kind: str, structure: Queueing, samples: Samples, seed: int) -> Trees | None:
        if kind == "grown":
            rows = corrected_features(structure, samples.sets)
            target = np.log(samples.p90_ms) - rows[:, -1] - KEPT * rows[:, 0]
            return Trees.grown(rows, target, RISING, seed, self.growth)
        return self.source.trees if kind == "source" and self.source else None

    def _cross_validated(self, samples: Samples, structure: Queueing, kinds: list[str], seed: int) -> dict[str, Floats]:
        """By kind, (M,) what models predict that were fitted on the other folds of sets.

        With many sets, the structure is the one of all: its few parameters hardly depend on a fold.
        """
        order = np.random.default_rng((seed, 2)).permutation(len(samples))
        expected = {kind: np.empty(len(samples.p90_ms)) for kind in kinds}
        for part in np.array_split(order, FOLDS):
            others = samples.take(np.setdiff1d(order, part))
            of_fold = structure if len(samples) > FOR_STRUCTURE else self._structure(others, seed)
            topics, held = samples.sets.topics_of(part), samples.sets.take(part)
            for kind in kinds:
                model = TrimModel(of_fold, self._trees(kind, of_fold, others, seed), int(held.sizes.max()))
                expected[kind][topics] = model.p90_ms(held)
        return expected


def _spreads(sets: Sets, use: Floats, residual: Floats) -> tuple[Spread, dict[int, Spread], dict[Group, Spread]]:
    """For all sets; and, where there are enough, for the sets of each size and for those of each group."""
    size, overloaded = sets.sizes[sets.set_of], _overloaded(sets, use)

    def spreads(groups: Iterable[tuple[Any, NDArray[np.bool_]]]) -> dict[Any, Spread]:
        return {name: Spread.calibrated(use[of], residual[of]) for name, of in groups if of.sum() >= FEW}

    sizes = [int(each) for each in np.unique(size)]
    by_size = spreads((each, size == each) for each in sizes)
    by_group = spreads(
        ((each, above), (size == each) & (overloaded == above)) for each in sizes for above in (False, True)
    )
    return Spread.calibrated(use, residual, DEFAULT_SPREAD if len(residual) < FEW else None), by_size, by_group


def _overloaded(sets: Sets, use: Floats) -> NDArray[np.bool_]:
    """(M,) whether a worker of the topic's set cannot keep up.

    Such sets are common among random ones and rare among those that an optimiser chooses. At the same use, the random
    sets of six topics were faster than predicted, and the chosen ones were not.
    """
    return np.asarray((sets.highest(use) > 1.0)[sets.set_of])


@dataclass(frozen=True, slots=True, eq=False)
class TrimModel:
    name: ClassVar[str] = Trim.name

    structure: Queueing  # its intervals are those of the whole model
    trees: Trees | None
    most: int
    by_size: Mapping[int, Spread] = field(default_factory=dict)  # intervals of sets of so many topics, where known
    by_group: Mapping[Group, Spread] = field(default_factory=dict)  # the same by whether a worker cannot keep up

    @property
    def hardware(self) -> Hardware:
        return self.structure.hardware

    def p90_ms(self, sets: Sets) -> Floats:
        self._refuse(sets)
        if self.trees is None:
            return self.structure.p90_ms(sets)
        # Trees have steps, so a set with copies must be the same numbers as one with as much processing.
        return self._corrected(sets.for_one_subscriber(self.structure.hardware), self.trees)

    def interval_ms(self, sets: Sets, coverage: float = 0.9) -> tuple[Floats, Floats]:
        predicted, use = self.p90_ms(sets), self.structure.use(sets)
        low, high = self.structure.spread.around(predicted, use, coverage)
        size, overloaded = sets.sizes[sets.set_of], _overloaded(sets, use)
        groups = [(size == count, spread) for count, spread in self.by_size.items()]
        groups += [((size == group[0]) & (overloaded == group[1]), each) for group, each in self.by_group.items()]
        for here, spread in groups:
            low[here], high[here] = spread.around(predicted[here], use[here], coverage)
        return low, high

    def use(self, sets: Sets) -> Floats:
        return self.structure.use(sets)

    def most_use(self, bound_ms: float) -> float:
        """Unlimited with trees: they may take back most of what the structure rises by."""
        return self.structure.most_use(bound_ms) if self.trees is None else math.inf

    def on(self, hardware: Hardware) -> TrimModel:
        """The structure of other hardware with the same correction."""
        return replace(self, structure=self.structure.on(hardware))

    def _corrected(self, sets: Sets, trees: Trees) -> Floats:
        rows = corrected_features(self.structure, sets)
        return np.asarray(np.exp(rows[:, -1] + KEPT * rows[:, 0] + trees.answer(rows)))

    def _refuse(self, sets: Sets) -> None:
        sets.refuse_senseless()
        sets.refuse_if_larger_than(self.most, self.name)

    def as_json(self) -> dict[str, Any]:
        trees = None if self.trees is None else self.trees.as_json()
        by_size = {str(size): spread.as_json() for size, spread in self.by_size.items()}
        by_group = [[*group, spread.as_json()] for group, spread in self.by_group.items()]
        return {
            "structure": self.structure.as_json(), "trees": trees, "most": self.most, "by_size": by_size,
            "by_group": by_group,
        }  # fmt: skip

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> TrimModel:
        trees = None if values["trees"] is None else Trees.from_json(values["trees"])
        by_size = {int(size): Spread.from_json(spread) for size, spread in values["by_size"].items()}
        by_group = {  # models of earlier versions have none
            (int(size), bool(overloaded)): Spread.from_json(spread)
            for size, overloaded, spread in values.get("by_group", [])
        }
        return cls(Queueing.from_json(values["structure"]), trees, int(values["most"]), by_size, by_group)


def corrected_features(structure: Queueing, sets: Sets) -> Floats:
    """(M, 8) the ``FEATURES`` of every topic."""
    use, time = structure.solve(sets)
    service = structure.hardware.message_ms(sets.processing_ms, sets.subscribers)
    load = sets.rate * service / 1000.0
    busy, cores, of = np.minimum(use, 1.0), float(structure.hardware.cores), sets.set_of
    columns = (
        np.log(structure.latency(use, time) / service), use, time / service, (sets.sum(load)[of] - load) / cores,
        (sets.sum(busy)[of] - busy) / cores, _busiest_other(sets.begin, use), sets.sizes[of], np.log(service),
    )  # fmt: skip
    return np.stack(columns, axis=1)


@compiled
def _busiest_other(begin: Ints, use: Floats) -> Floats:
    """(M,) the highest use among the other topics of the set; 0 without any."""
    found = np.zeros(len(use))
    for s in range(len(begin) - 1):
        for t in range(begin[s], begin[s + 1]):
            for u in range(begin[s], begin[s + 1]):
                if u != t and use[u] > found[t]:
                    found[t] = use[u]
    return found
