"""The protocol of placement policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from trimtab.model.placement import Placement
    from trimtab.model.problem import Problem


class Policy(Protocol):
    """A frozen dataclass. Its fields are knobs, declared with ``knobs.knob``; the problem is an argument of ``place``.

    The first line of its docstring is its description with the paper it comes from: ``trimtab policies`` shows it.
    """

    may_leave_unplaced: ClassVar[bool]  # whether units without a broker are part of the answer
    keeps_limits: ClassVar[bool]  # whether no broker ever carries more than it can

    def place(self, problem: Problem) -> Placement:
        """A broker for every unit, and a bound if the policy proved one. Never changes ``problem``."""
        ...
