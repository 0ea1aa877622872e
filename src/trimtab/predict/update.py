"""Updates a fitted model with new measurements, of which there may be few: the model itself is the prior."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadInput
from trimtab.predict.fit import LEAST_SETS, fit, fitted

if TYPE_CHECKING:
    from trimtab.predict.queueing import Queueing
    from trimtab.predict.samples import Samples

LEAST: Final = 3  # sets


def updated(model: Queueing, samples: Samples, *, seed: int = 0) -> Queueing:
    """The model after new measurements of its hardware.

    With ten sets or more its intervals are calibrated anew. With fewer, they stay as they are.
    """
    if samples.hardware.name != model.hardware.name:
        raise BadInput(
            f"samples of hardware '{samples.hardware.name}' cannot update a model of '{model.hardware.name}': "
            "fit a model of their own"
        )
    if len(samples) < LEAST:
        raise BadInput(f"{len(samples)} measured sets are too few to update a model: {LEAST} or more")
    if len(samples) >= LEAST_SETS:
        return fit(samples, model, seed=seed).model
    return replace(fitted(samples, model), spread=model.spread)
