"""``mlp``: the neural networks of Khare et al. (SEC'18, IV-D and VI-B), one for each number of topics on a broker.

Two hidden layers of 40 neurons for up to five topics, of 100 for six and more; ReLU, the solver lbfgs, an L2 penalty of
0.1, and the logarithm of p90 as the target. The paper does not say how inputs are scaled and how many iterations are
made; here inputs have mean 0 and deviation 1, and lbfgs makes at most 200 iterations, the default of scikit-learn: with
more, networks fit their training data better and other data worse. A topic alone is predicted by ``poly4``, as there.
The paper's features say nothing of subscribers (IV-C: 200 of them matter little within a bound of one second); the
copies for all but the first one count as processing here.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.predict.numbers import numbers
from trimtab.predict.poly4 import Poly4, Poly4Model
from trimtab.predict.sets import features
from trimtab.predict.spread import LEAST, Spread

if TYPE_CHECKING:
    from trimtab.model.hardware import Hardware
    from trimtab.model.workload import Floats
    from trimtab.predict.samples import Samples
    from trimtab.predict.sets import Ints, Sets

PENALTY: Final = 0.1
LEAST_SETS: Final = 20  # of each size
HIGHEST: Final = 20.0  # of a predicted log latency in ms: five days; far outside its data, a network says anything


@dataclass(frozen=True, slots=True)
class Mlp:
    """95 % of the samples are fitted and 5 % calibrate the intervals, as the paper splits its data (VI-B)."""

    name: ClassVar[str] = "mlp"
    summary: ClassVar[str] = "a neural network for each number of topics (Khare et al., SEC'18)"

    share: float = 0.95
    rounds: int = 200  # of lbfgs, at most

    def refuse_too_few(self, sizes: Ints) -> None:
        most = int(sizes.max(initial=0))
        if most < 1:
            raise BadInput("mlp has no samples to learn from")
        Poly4().refuse_too_few(sizes)
        for size in range(2, most + 1):
            count = int((sizes == size).sum())
            if count < LEAST_SETS:
                raise BadInput(
                    f"mlp has a network for each number of topics and needs {LEAST_SETS} measured sets for each, but "
                    f"has {count} sets of {size} topics; trim needs fewer"
                )

    def fit(self, samples: Samples, *, seed: int = 0) -> MlpModel:
        self.refuse_too_few(samples.sets.sizes)
        most = int(samples.sets.sizes.max())
        alone = Poly4().fit(samples, seed=seed)
        return MlpModel(alone, tuple(self._network(samples.with_size(size), size, seed) for size in range(2, most + 1)))

    def _network(self, samples: Samples, size: int, seed: int) -> Network:
        held = max(len(samples) - round(self.share * len(samples)), -(-2 * LEAST // size))
        train, rest = samples.split(1.0 - held / len(samples), (seed, size))
        network = Network.learned(train, layers(size), self.rounds, seed)
        predicted = network.answer(features(rest.sets.for_one_subscriber(rest.hardware)))
        return network.with_spread(Spread.calibrated(predicted, np.log(rest.p90_ms) - predicted))


def layers(size: int) -> tuple[int, int]:
    return (40, 40) if size <= 5 else (100, 100)


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Layers of weights; inputs are scaled first."""

    mean: Floats  # (6,) of the features
    deviation: Floats  # (6,)
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]
    spread: Spread | None = None  # by the predicted log latency

    @classmethod
    def learned(cls, samples: Samples, hidden: tuple[int, ...], rounds: int, seed: int) -> Network:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.neural_network import MLPRegressor

        rows = features(samples.sets.for_one_subscriber(samples.hardware))
        mean, deviation = rows.mean(axis=0), np.maximum(rows.std(axis=0), 1e-9)
        regressor = MLPRegressor(
            hidden_layer_sizes=hidden, activation="relu", solver="lbfgs", alpha=PENALTY, max_iter=rounds,
            max_fun=10 * rounds, random_state=seed,
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # the limit of rounds is ours
            regressor.fit((rows - mean) / deviation, np.log(samples.p90_ms))
        return cls(mean, deviation, tuple(regressor.coefs_), tuple(regressor.intercepts_))

    def with_spread(self, spread: Spread) -> Network:
        return Network(self.mean, self.deviation, self.weights, self.biases, spread)

    def answer(self, rows: Floats) -> Floats:
        """(M,) the logarithm of p90."""
        values = (rows - self.mean) / self.deviation
        for weight, bias in zip(self.weights[:-1], self.biases[:-1], strict=True):
            values = np.maximum(values @ weight + bias, 0.0)
        return np.asarray(np.minimum((values @ self.weights[-1] + self.biases[-1])[:, 0], HIGHEST))

    def as_json(self) -> dict[str, Any]:
        assert self.spread is not None
        return {
            "mean": self.mean.tolist(), "deviation": self.deviation.tolist(), "spread": self.spread.as_json(),
            "weights": [each.tolist() for each in self.weights], "biases": [each.tolist() for each in self.biases],
        }  # fmt: skip

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Network:
        weights, biases = (tuple(numbers(each) for each in values[name]) for name in ("weights", "biases"))
        mean, deviation = (numbers(values[name]) for name in ("mean", "deviation"))
        return cls(mean, deviation, weights, biases, Spread.from_json(values["spread"]))


@dataclass(frozen=True, slots=True, eq=False)
class MlpModel:
    name: ClassVar[str] = Mlp.name

    alone: Poly4Model
    networks: tuple[Network, ...]  # for 2, 3, ... topics

    @property
    def hardware(self) -> Hardware:
        return self.alone.hardware

    @property
    def most(self) -> int:
        return 1 + len(self.networks)

    def p90_ms(self, sets: Sets) -> Floats:
        return self._predicted(sets, 0.9)[0]

    def interval_ms(self, sets: Sets, coverage: float = 0.9) -> tuple[Floats, Floats]:
        _, low, high = self._predicted(sets, coverage)
        return low, high

    def _predicted(self, sets: Sets, coverage: float) -> tuple[Floats, Floats, Floats]:
        """(M,) each: p90 and the limits of its interval."""
        sets.refuse_senseless()
        sets.refuse_if_larger_than(self.most, self.name)
        sets = sets.for_one_subscriber(self.hardware)
        size, rows = sets.sizes[sets.set_of], features(sets)
        found = np.empty((3, len(rows)))
        single = np.flatnonzero(sets.sizes == 1)
        alone = sets.take(single)
        found[:, size == 1] = self.alone.p90_ms(alone), *self.alone.interval_ms(alone, coverage)
        for count, network in enumerate(self.networks, 2):
            here = size == count
            answer = network.answer(rows[here])
            assert network.spread is not None
            found[:, here] = np.exp(answer), *network.spread.around(np.exp(answer), answer, coverage)
        return found[0], found[1], found[2]

    def as_json(self) -> dict[str, Any]:
        return {"alone": self.alone.as_json(), "networks": [each.as_json() for each in self.networks]}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> MlpModel:
        return cls(Poly4Model.from_json(values["alone"]), tuple(Network.from_json(each) for each in values["networks"]))
