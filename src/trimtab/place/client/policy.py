"""What the policies of this family have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from trimtab.model.placement import UNPLACED, Placement

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Rows


class ClientPolicy:
    """Everybody gets a home, whatever that does to a broker; unless there are no brokers at all."""

    __slots__ = ()

    may_leave_unplaced: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = False

    def place(self, problem: Problem) -> Placement:
        return Placement("client", self.homes(problem) if problem.brokers else nowhere(problem.units))

    def homes(self, problem: Problem) -> Rows:
        """The broker of every client; there is at least one."""
        raise NotImplementedError


def nowhere(clients: int) -> Rows:
    """Nobody has a home; read-only, as all that a policy is given is: kernels are compiled for that."""
    homes = np.full(clients, UNPLACED, np.int32)
    homes.flags.writeable = False
    return homes
