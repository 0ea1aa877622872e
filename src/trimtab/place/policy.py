"""What every policy is."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from trimtab.model.placement import Placement
    from trimtab.model.problem import Problem


class Policy(Protocol):
    """A frozen dataclass: knobs are its fields (``seed`` among them if it draws), data comes in the call."""

    may_leave_unplaced: ClassVar[bool]  # whether units without a broker are part of the answer
    keeps_limits: ClassVar[bool]  # whether no broker ever carries more than it can

    def place(self, problem: Problem) -> Placement:
        """A broker for every unit, and what was proved on the way. Never changes ``problem``."""
        ...
