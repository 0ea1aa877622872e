"""Fits the hardware profile of a measured broker, and says how good it is and what more measurements would bring."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.lab.profile.results import (
    UNKNOWN_COST,
    UNKNOWN_NOISE,
    Cost,
    Noise,
    cost_of,
    noise_of,
    samples_of,
    usable,
)
from trimtab.predict.fit import LEAST_SETS, Fit, fit, fitted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trimtab.lab.profile.measure import Machine
    from trimtab.lab.profile.trial import Trial
    from trimtab.predict.samples import Samples

DRAWS: Final = 3  # of the sets behind one point of the learning curve
HELD_OUT: Final = 0.25  # share of the sets that a point is judged on
SHARES: Final = (0.4, 0.7, 1.0)  # of the other sets, fitted on
ENOUGH: Final = 0.01  # gain in the median error below which more measurements are not worth their time
GOOD: Final = 1.15  # error, as a multiple of the noise, that counts as reached


@dataclass(frozen=True, slots=True)
class Point:
    """Of the learning curve: the median error on topics that the model was not fitted on."""

    sets: int
    error: float


@dataclass(frozen=True, slots=True)
class Advice:
    """What more measurements would bring, by the learning curve."""

    curve: tuple[Point, ...]
    more: int  # further co-locations that are worth measuring; 0: enough
    expected: float  # the error that is expected with them

    def sentence(self, noise: Noise) -> str:
        now = self.curve[-1].error if self.curve else float("nan")
        floor = f" (a perfect prediction would have {noise.median:.0%}, by repeated runs)" if noise.topics else ""
        if not self.more:
            return f"more measurements would hardly help: the error has come down to {now:.0%}{floor}"
        if not np.isfinite(self.expected):
            return f"these are too few to say what more would bring: measure {self.more} more, by a larger --runs"
        return f"about {self.more} more co-locations would bring the median error from {now:.0%} to {self.expected:.0%}"


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """The result of a profile: samples and what was fitted to them."""

    samples: Samples
    fit: Fit
    noise: Noise
    cost: Cost
    advice: Advice

    def as_json(self) -> dict[str, Any]:
        return {
            "hardware": self.fit.model.hardware.as_json(), "accuracy": self.fit.accuracy.as_json(),
            "noise": self.noise.as_json(),
            "cost": {name: None if np.isnan(value) else value for name, value in asdict(self.cost).items()},
            "more": {"curve": [asdict(point) for point in self.advice.curve], "colocations": self.advice.more,
                     "expected_error": _finite(self.advice.expected)},
        }  # fmt: skip


def profile_of(
    trials: Sequence[Trial], machine: Machine, name: str, seed: int, step: Callable[[str], None], **provenance: Any
) -> Profile:
    """Fit the profile of a machine to its finished runs."""
    count = len({trial.colocation for trial in trials if usable(trial)})
    if count < LEAST_SETS:
        raise BadInput(
            f"{count} measured co-locations are too few to fit a profile: {LEAST_SETS} or more; the same command with "
            f"a larger --runs goes on from here"
        )
    samples = samples_of(trials, machine, **provenance)
    return fitted_to(samples, name, seed, step, noise_of(trials), cost_of(trials))


def fitted_to(
    samples: Samples, name: str, seed: int, step: Callable[[str], None], noise: Noise = UNKNOWN_NOISE,
    cost: Cost = UNKNOWN_COST,
) -> Profile:  # fmt: skip
    step("fitting")
    found = fit(samples, name=name, seed=seed)
    step("learning curve")
    return Profile(samples, found, noise, cost, advice(samples, noise, seed))


def advice(samples: Samples, noise: Noise, seed: int) -> Advice:
    """Fit on fewer sets than there are, and see how the error falls. The error with n sets is taken as a + b / n."""
    errors: dict[int, list[float]] = {}
    for draw in range(DRAWS):
        order = np.random.default_rng((seed, draw)).permutation(len(samples))
        held = max(round(HELD_OUT * len(samples)), 2)
        test, rest = samples.take(order[:held]), order[held:]
        for share in SHARES:
            count = round(share * len(rest))
            if count >= LEAST_SETS:
                predicted = fitted(samples.take(np.sort(rest[:count]))).p90_ms(test.sets)
                errors.setdefault(count, []).append(float(np.median(np.abs(predicted / test.p90_ms - 1.0))))
    curve = tuple(Point(count, float(np.mean(errors[count]))) for count in sorted(errors))
    return Advice(curve, *_more(curve, len(samples), noise))


def _more(curve: Sequence[Point], now: int, noise: Noise) -> tuple[int, float]:
    """How many more sets are worth measuring, and the error with them."""
    if len(curve) < 2:
        return now, float("nan")
    inverse = np.array([1.0 / point.sets for point in curve])
    error = np.array([point.error for point in curve])
    slope, limit = np.polyfit(inverse, error, 1)
    floor = noise.median if noise.topics else 0.0
    then = max(limit + slope / (2 * now), floor, 0.0)
    here = max(limit + slope / now, 0.0)
    if slope <= 0.0 or here - then < ENOUGH or here <= GOOD * floor:
        return 0, float(max(here, floor))
    return now, float(then)


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
