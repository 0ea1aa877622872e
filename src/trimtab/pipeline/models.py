"""Trains the predictors on samples, evaluates them, and stores them with their cards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.predict.accuracy import BOUND_MS
from trimtab.predict.card import LEAST_TOPICS, Card, Evaluation, data_of, evaluations
from trimtab.predict.configurations import PROCESSING_MS, packed_sets, simulated
from trimtab.predict.registry import predictor
from trimtab.predict.samples import Samples
from trimtab.predict.store import write_model
from trimtab.predict.trim import Trim, TrimModel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from trimtab.model.hardware import Hardware
    from trimtab.predict.model import LatencyModel
    from trimtab.predict.registry import Predictor
    from trimtab.predict.sets import Ints

FOLDS: Final = 4  # of an evaluation without test samples
MOST_FOLDS: Final = 10  # where four leave too few sets to fit on; with fewer sets, each is left out in turn
CHOSEN: Final = 400  # sets that a model chooses itself, to be tested on


@dataclass(frozen=True, slots=True)
class Task:
    """What to train: the names of predictors, and what an adapted model starts from."""

    names: tuple[str, ...]
    seed: int = 0
    source: TrimModel | None = None
    prior: Hardware | None = None
    bound_ms: float = BOUND_MS  # for which a card says how often predictions are on its wrong side

    def predictors(self) -> list[Predictor]:
        if self.source and set(self.names) != {Trim.name}:
            raise BadInput(f"only '{Trim.name}' can be adapted to new hardware, not {', '.join(self.names)}")
        adapted: Predictor = Trim(source=self.source, prior=self.prior)
        return [adapted if name == Trim.name else predictor(name) for name in self.names]


@dataclass(frozen=True, slots=True)
class Trained:
    model: LatencyModel
    card: Card
    folder: Path


@dataclass(frozen=True, slots=True)
class Data:
    """What models are made of. ``test`` and ``packed`` are known for simulated samples only."""

    samples: Samples
    test: Samples | None = None
    packed: Samples | None = None
    processing_ms: tuple[float, ...] = PROCESSING_MS  # that simulated samples were drawn from

    def of(self, name: str) -> Samples:
        """The paper's models are fitted on random sets, as there; trim also on sets that an optimiser chooses."""
        return Samples.joined([self.samples, self.packed]) if self.packed and name == Trim.name else self.samples


def fitted(task: Task, data: Data, out: Path, done: Callable[[], None]) -> list[Trained]:
    """Fit every predictor, and evaluate it. Nothing is written.

    Without samples to test with, errors are those of a cross-validation over sets.
    """
    predictors = task.predictors()
    for each in predictors:  # before any work
        sizes = data.of(each.name).sets.sizes
        each.refuse_too_few(sizes)
        if data.test is None:
            _folds(each, sizes, task.seed)
    trained = []
    for each in predictors:
        samples = data.of(each.name)
        model = each.fit(samples, seed=task.seed)
        if data.test is None:
            by_size, tested = _cross_validated(each, model, samples, task)
        else:
            by_size = evaluations(model, data.test, task.bound_ms)
            tested = f"{len(data.test)} held-out sets"
        chosen = None if data.test is None or model.most < 2 else chosen_by(model, task, data)
        card = Card(
            each.name, model.hardware.name, model.most, data_of(samples), task.seed, tested, by_size, chosen,
            task.bound_ms,
        )  # fmt: skip
        trained.append(Trained(model, card, out / each.name))
        done()
    return trained


def write(trained: Sequence[Trained]) -> None:
    for one in trained:
        write_model(one.model, one.card, one.folder)


def train(task: Task, data: Data, out: Path, done: Callable[[], None]) -> list[Trained]:
    """Fit every predictor, then write all of them: nothing is written if one cannot be fitted."""
    trained = fitted(task, data, out, done)
    write(trained)
    return trained


def chosen_by(model: LatencyModel, task: Task, data: Data, count: int = CHOSEN) -> Evaluation:
    """On sets that an optimiser chooses with this very model; they are simulated here."""
    assert data.test is not None
    hardware, run_s, seed = data.test.hardware, data.test.run_s, task.seed + 1
    sets = packed_sets(model, model.most, count, seed, data.processing_ms, task.bound_ms)
    return Evaluation.of(model, Samples(hardware, sets, *simulated(hardware, sets, seed, run_s), run_s), task.bound_ms)


def _folds(each: Predictor, sizes: Ints, seed: int) -> list[Ints]:
    """Rows of the sets of each fold: as few folds as leave enough sets to fit on, and not less than ``FOLDS``."""
    order = np.random.default_rng((seed, 3)).permutation(len(sizes))
    for folds in sorted({*range(FOLDS, MOST_FOLDS + 1), len(order)}):
        parts = np.array_split(order, min(folds, len(order)))
        try:
            for part in parts:
                each.refuse_too_few(np.delete(sizes, part))
        except BadInput:
            continue
        return parts
    raise BadInput(f"{len(sizes)} measured sets are enough to fit '{each.name}', but too few to leave some out and "
                   "test it on them: measure some more")  # fmt: skip


def _cross_validated(
    each: Predictor, model: LatencyModel, samples: Samples, task: Task
) -> tuple[dict[int, Evaluation], str]:  # fmt: skip
    parts, every = _folds(each, samples.sets.sizes, task.seed), np.arange(len(samples))
    models = [each.fit(samples.take(np.setdiff1d(every, part)), seed=task.seed) for part in parts]
    held = [samples.take(np.sort(part)) for part in parts]
    by_size = {size: [part.with_size(size) for part in held] for size in range(1, model.most + 1)}
    found = {
        size: Evaluation.joined(models, of_size, task.bound_ms)
        for size, of_size in by_size.items()
        if sum(len(part.p90_ms) for part in of_size) >= LEAST_TOPICS
    }
    return found, f"{len(samples)} sets, by {len(parts)}-fold cross-validation"


def as_json(trained: Sequence[Trained]) -> dict[str, Any]:
    return {one.card.predictor: {"folder": str(one.folder)} | one.card.as_json() for one in trained}
