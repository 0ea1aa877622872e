"""Boosted regression trees: grown by scikit-learn, kept as plain arrays, answered by a kernel.

They can be constrained to rise with some of their features (histogram gradient boosting, Ke et al., NeurIPS 2017).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.predict.numbers import numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.model.workload import Floats
    from trimtab.predict.sets import Ints

LEAF: Final = -1  # as the feature of a node


@dataclass(frozen=True, slots=True)
class Growth:
    """How trees are grown."""

    rounds: int = 150
    rate: float = 0.1  # share of each tree's correction that is taken
    leaves: int = 16  # of one tree
    rows_per_leaf: int = 20  # at least
    shrink: float = 1.0  # L2 penalty of leaf values


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """Nodes of all trees. A row goes left where its feature is at most the threshold."""

    base: float  # to which the leaf of every tree is added
    root: Ints  # (R,) first node of each tree
    feature: Ints  # (N,) LEAF at a leaf
    threshold: Floats  # (N,) the value at a leaf
    left: Ints  # (N,)
    right: Ints  # (N,)

    @classmethod
    def grown(cls, rows: Floats, target: Floats, rising: Sequence[bool], seed: int, growth: Growth) -> Trees:
        """``rising``: of each feature, whether the answer must not fall where it grows. No random draw is made unless
        there are very many rows, of which a sample decides the bins."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        learned = HistGradientBoostingRegressor(
            max_iter=growth.rounds, learning_rate=growth.rate, max_leaf_nodes=growth.leaves,
            min_samples_leaf=growth.rows_per_leaf, l2_regularization=growth.shrink, early_stopping=False,
            monotonic_cst=[int(each) for each in rising], random_state=seed,
        ).fit(rows, target)  # fmt: skip
        return cls._of(learned)

    @classmethod
    def _of(cls, learned: Any) -> Trees:
        """scikit-learn offers no public access to the nodes; a test compares our answers with its own."""
        trees = [stage[0].nodes for stage in learned._predictors]
        first = np.concatenate([[0], np.cumsum([len(tree) for tree in trees])])
        nodes = np.concatenate(trees)
        shift = np.repeat(first[:-1], [len(tree) for tree in trees])
        leaf = nodes["is_leaf"].astype(bool)
        return cls(
            float(np.ravel(learned._baseline_prediction)[0]), first[:-1],
            np.where(leaf, LEAF, nodes["feature_idx"]).astype(np.int64),
            np.where(leaf, nodes["value"], nodes["num_threshold"]),
            np.where(leaf, 0, nodes["left"] + shift), np.where(leaf, 0, nodes["right"] + shift),
        )  # fmt: skip

    def answer(self, rows: Floats) -> Floats:
        """(M,) of rows with one column per feature."""
        return self.base + _added(rows, self.root, self.feature, self.threshold, self.left, self.right)

    def as_json(self) -> dict[str, Any]:
        arrays = {field.name: getattr(self, field.name).tolist() for field in fields(self) if field.name != "base"}
        return {"base": self.base} | arrays

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Trees:
        whole = (np.asarray(values[name], np.int64) for name in ("root", "feature", "left", "right"))
        root, feature, left, right = whole
        return cls(float(values["base"]), root, feature, numbers(values["threshold"]), left, right)


@compiled
def _added(rows: Floats, root: Ints, feature: Ints, threshold: Floats, left: Ints, right: Ints) -> Floats:
    total = np.zeros(len(rows))
    for row in range(len(rows)):
        for node in root:
            while feature[node] >= 0:
                node = left[node] if rows[row, feature[node]] <= threshold[node] else right[node]
            total[row] += threshold[node]
    return total
