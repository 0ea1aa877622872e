"""How close the topics of brokers are to their latency bounds.

The *strain* of a topic with a bound is the larger of two ratios: its predicted p90 to the bound, and the share of time
in which its worker is busy to the share in which it may be. Above 1, the bound is expected to be missed. The margin is
on the busy share, since latency rises from a fraction of a second to several within 2 % more load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.model.hardware import PLAIN
from trimtab.predict.queueing import Queueing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.model.workload import Floats
    from trimtab.predict.sets import Sets


def model_of(values: Mapping[str, Any]) -> Queueing:
    """The model that a question or the settings carry as JSON values; without any, that of an unknown machine."""
    return Queueing.from_json(dict(values)) if values else Queueing(PLAIN)


def strains(model: Queueing, sets: Sets, bound_ms: Floats, headroom: float) -> Floats:
    """(M,) the strain of every topic, 0 for one without a bound (NaN)."""
    use, time = model.solve(sets)
    bound = np.asarray(bound_ms, np.float64)
    strain = np.maximum(model.latency(use, time) / bound, use / (1.0 - headroom))
    return np.where(np.isnan(bound), 0.0, strain)
