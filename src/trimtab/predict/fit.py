"""Fits the queueing model to measured sets of topics: a few dozen are enough, since its structure is known.

Least squares of log latencies with a robust loss (soft L1), with a named profile as the prior. What the measurements do
not determine stays as in the prior, so 20 to 50 sets adapt a model to new hardware. Intervals are calibrated on topics
that the fit did not see: by cross-validation over sets.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy.optimize import least_squares

from trimtab.errors import BadInput, BadKnob
from trimtab.predict.accuracy import Accuracy
from trimtab.predict.parameters import Parameters
from trimtab.predict.queueing import DEFAULT_SPREAD, Queueing
from trimtab.predict.spread import PER_SCALE, Spread

if TYPE_CHECKING:
    from trimtab.model.hardware import Hardware
    from trimtab.model.workload import Floats
    from trimtab.predict.samples import Samples

LEAST_SETS: Final = 10  # to fit on
FOLDS: Final = 4
ROUNDS: Final = 2  # of weights by the use that the last round has found
CLOSE: Final = 1e-7  # of the fixed point; derivatives are differences
STEP: Final = 1e-3  # of z
FIRST_NOISE: Final = 0.15  # of a log latency, before the use is known
CPU_NOISE: Final = 0.03  # of the share of cores in use
TRIALS: Final = 60  # of the search, in each round
FEW: Final = 10 * PER_SCALE  # residuals below which the scale of intervals by use is not learned but kept


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """A fitted model, and what it predicted of topics before it was fitted on them."""

    model: Queueing  # with calibrated intervals
    accuracy: Accuracy  # cross-validated
    expected_ms: Floats  # (M,) cross-validated predictions of the samples
    uncertainty: dict[str, float]  # of each parameter: its deviation, as a share of that of the prior


def fit(samples: Samples, prior: Hardware | Queueing | None = None, *, name: str = "", seed: int = 0) -> Fit:
    """The queueing model of the hardware of the samples. ``prior``: a model or profile of similar hardware with the
    same number of cores. ``name``: of the fitted hardware."""
    if len(samples) < LEAST_SETS:
        raise BadInput(f"{len(samples)} measured sets are too few to fit a model: {LEAST_SETS} or more")
    start = _start(samples, prior, name)
    z, uncertainty, parameters = _searched(samples, start)
    expected = cross_validated(samples, start, seed)
    model = parameters.model(z)
    use = model.use(samples.sets)
    residual = np.log(samples.p90_ms / expected)
    spread = Spread.calibrated(use, residual, DEFAULT_SPREAD if len(residual) < FEW else None)
    accuracy = Accuracy.of(samples.p90_ms, expected)
    return Fit(replace(model, spread=spread), accuracy, expected, uncertainty)


def fitted(samples: Samples, prior: Hardware | Queueing | None = None, *, name: str = "") -> Queueing:
    """The model alone, without calibrated intervals: a fifth of the time."""
    z, _, parameters = _searched(samples, _start(samples, prior, name))
    return parameters.model(z)


def cross_validated(samples: Samples, prior: Queueing, seed: int, folds: int = FOLDS) -> Floats:
    """(M,) the p90 that a model predicts which was fitted on the other folds of sets."""
    if folds < 2:
        raise BadKnob("fit", "folds", folds, "2 or more")
    order = np.random.default_rng(seed).permutation(len(samples))
    expected = np.empty(len(samples.p90_ms))
    for part in np.array_split(order, folds):
        others = np.setdiff1d(order, part)
        z, _, parameters = _searched(samples.take(others), prior)
        expected[samples.sets.topics_of(part)] = parameters.model(z).p90_ms(samples.sets.take(part))
    return expected


def _start(samples: Samples, prior: Hardware | Queueing | None, name: str) -> Queueing:
    if prior is None:
        prior = samples.hardware
    model = prior if isinstance(prior, Queueing) else Queueing(prior)
    hardware = replace(model.hardware, name=name or samples.hardware.name, cores=samples.hardware.cores,
                       processing=samples.hardware.processing)  # fmt: skip
    if hardware.background >= hardware.cores:
        hardware = replace(hardware, background=0.0)
    return replace(model, hardware=hardware, shape=replace(model.shape, run_ms=1000.0 * samples.run_s))


def _searched(samples: Samples, start: Queueing) -> tuple[Floats, dict[str, float], Parameters]:
    parameters = Parameters.of(start, samples.sets)
    target, measured = np.log(samples.p90_ms), np.isfinite(samples.cpu)
    noise = np.full(len(target), FIRST_NOISE)

    def residuals(z: Floats) -> Floats:
        model = parameters.model(z)
        use, time = model.solve(samples.sets, CLOSE)
        parts = [(np.log(model.latency(use, time)) - target) / noise, z]
        if measured.any():
            parts.append((model.cpu(samples.sets) - samples.cpu)[measured] / CPU_NOISE)
        return np.concatenate(parts)

    def derivatives(z: Floats) -> Floats:
        here = residuals(z)
        rows = np.empty((len(here), len(z)))
        for i in range(len(z)):
            moved = z.copy()
            moved[i] += STEP if z[i] + STEP <= parameters.high[i] else -STEP
            rows[:, i] = (residuals(moved) - here) / (moved[i] - z[i])
        return rows

    z = np.zeros(len(parameters.low))
    for _ in range(ROUNDS):
        found = least_squares(
            residuals, np.clip(z, parameters.low + 1e-6, parameters.high - 1e-6), derivatives,
            bounds=(parameters.low, parameters.high), loss="soft_l1", max_nfev=TRIALS,
        )  # fmt: skip
        z = found.x
        noise = np.interp(parameters.model(z).use(samples.sets), DEFAULT_SPREAD.at, DEFAULT_SPREAD.scale)
    covariance = np.linalg.pinv(found.jac.T @ found.jac)
    deviation = np.sqrt(np.clip(np.diag(covariance), 0.0, 1.0))
    return z, dict(zip(parameters.names, deviation.tolist(), strict=True)), parameters
