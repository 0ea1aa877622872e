"""Placements: a broker for every unit, and proved bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from trimtab.errors import BadTable
from trimtab.model.key import UNITS as UNITS
from trimtab.model.key import Unit as Unit

if TYPE_CHECKING:
    from trimtab.model.workload import Rows

UNPLACED: Final = -1


# Figures of a judgement that a bound can be about.
Figure = Literal["received", "max_load", "delay", "brokers_used", "violating_pairs"]


@dataclass(frozen=True, slots=True)
class Bound:
    """A proved bound of a problem: no placement has a better value of this figure."""

    kind: str  # how it was proved
    value: float
    figure: Figure = "received"

    @property
    def more_is_better(self) -> bool:
        return self.figure == "received"

    def proves(self, achieved: float) -> bool:
        """Whether ``achieved`` is optimal: it reaches the bound, up to rounding errors."""
        slack = 1e-12 * max(abs(self.value), abs(achieved))
        return bool(achieved >= self.value - slack if self.more_is_better else achieved <= self.value + slack)

    def gap(self, achieved: float) -> float:
        """The distance from the bound, as a share of the bound."""
        if self.value <= 0.0:
            return 0.0
        ratio = achieved / self.value
        return max(1.0 - ratio if self.more_is_better else ratio - 1.0, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class Placement:
    """A broker for every unit, or -1. The units of ``link`` are the subscriptions, in table order.

    A publisher needs no row of its own there: its data enters every broker that carries one of its links.
    """

    unit: Unit
    broker: Rows  # (units,) row in brokers, UNPLACED where no broker serves the unit
    bound: Bound | None = None  # bound that the policy proved, if any

    def __post_init__(self) -> None:
        if self.unit not in UNITS:
            raise BadTable("placement", f"unit is '{self.unit}', but must be one of {', '.join(UNITS)}")
        broker: Any = np.asarray(self.broker, dtype=np.int32)
        if broker.ndim != 1:
            raise BadTable("placement", f"broker has shape {broker.shape}, but must be one column")
        if broker.flags.writeable:
            broker = broker.view()
            broker.flags.writeable = False
        object.__setattr__(self, "broker", broker)

    def __len__(self) -> int:
        return len(self.broker)
