"""``poly4``: the model of a topic in isolation of Khare et al. (SEC'18, IV-D).

It is a polynomial of degree 4 in processing time and rate. Its target is the logarithm of p90, as that of the networks
is: with p90 itself, R2 is far below the printed 0.97.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.model.hardware import Hardware
from trimtab.predict.numbers import numbers
from trimtab.predict.spread import LEAST, LEVELS, Spread

if TYPE_CHECKING:
    from trimtab.model.workload import Floats
    from trimtab.predict.samples import Samples
    from trimtab.predict.sets import Ints, Sets

DEGREE: Final = 4
POWERS: Final = np.array([(i, j) for i in range(DEGREE + 1) for j in range(DEGREE + 1 - i)])
LEAST_SETS: Final = 30
UNKNOWN: Final = Spread(np.zeros(1), np.zeros(1), np.zeros(0), np.zeros((1, len(LEVELS))))  # before the calibration
FARTHEST: Final = 1.1  # times the largest processing time and rate it was fitted on: further out it is not asked


@dataclass(frozen=True, slots=True)
class Poly4:
    """60 % of the samples are fitted and 40 % calibrate the intervals, as the paper splits its 180 (VI-B)."""

    name: ClassVar[str] = "poly4"
    summary: ClassVar[str] = "polynomial of degree 4, for a topic that is alone (Khare et al., SEC'18)"

    share: float = 0.6

    def refuse_too_few(self, sizes: Ints) -> None:
        alone = int((sizes == 1).sum())
        if alone < LEAST_SETS:
            raise BadInput(f"poly4 needs {LEAST_SETS} measured topics that were alone, but has {alone}")

    def fit(self, samples: Samples, *, seed: int = 0) -> Poly4Model:
        self.refuse_too_few(samples.sets.sizes)
        alone = samples.with_size(1)
        train, rest = alone.split(self.share, seed)
        sets = alone.sets.for_one_subscriber(alone.hardware)
        scale = np.array([sets.processing_ms.max(), sets.rate.max()])
        columns = _columns(train.sets.for_one_subscriber(train.hardware), scale)
        solution = np.linalg.lstsq(columns, np.log(train.p90_ms), rcond=1e-10)
        weights = np.asarray(solution[0], np.float64)
        uncalibrated = Poly4Model(samples.hardware, scale, weights, UNKNOWN)
        predicted = uncalibrated.p90_ms(rest.sets)
        spread = Spread.calibrated(np.log(predicted), np.log(rest.p90_ms / predicted))
        assert len(rest) >= LEAST
        return Poly4Model(samples.hardware, scale, weights, spread)


@dataclass(frozen=True, slots=True, eq=False)
class Poly4Model:
    name: ClassVar[str] = Poly4.name
    most: ClassVar[int] = 1

    hardware: Hardware
    scale: Floats  # (2,) largest processing time and rate it was fitted on
    weights: Floats  # (15,)
    spread: Spread  # by the logarithm of the prediction

    def p90_ms(self, sets: Sets) -> Floats:
        sets.refuse_senseless()
        sets.refuse_if_larger_than(self.most, self.name)
        return np.asarray(np.exp(_columns(sets.for_one_subscriber(self.hardware), self.scale) @ self.weights))

    def interval_ms(self, sets: Sets, coverage: float = 0.9) -> tuple[Floats, Floats]:
        predicted = self.p90_ms(sets)
        return self.spread.around(predicted, np.log(predicted), coverage)

    def as_json(self) -> dict[str, Any]:
        return {
            "hardware": self.hardware.as_json(), "scale": self.scale.tolist(), "weights": self.weights.tolist(),
            "spread": self.spread.as_json(),
        }  # fmt: skip

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Poly4Model:
        return cls(
            Hardware.from_json(values["hardware"]), numbers(values["scale"]), numbers(values["weights"]),
            Spread.from_json(values["spread"]),
        )  # fmt: skip


def _columns(sets: Sets, scale: Floats) -> Floats:
    values = np.minimum(np.stack([sets.processing_ms, sets.rate], axis=1) / scale, FARTHEST)
    return np.asarray(np.prod(values[:, None, :] ** POWERS[None, :, :], axis=2))
