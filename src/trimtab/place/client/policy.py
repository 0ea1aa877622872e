"""The base class of client policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from trimtab.model.placement import UNPLACED, Placement

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Rows


class ClientPolicy:
    """Gives every client a home, even above a broker's limits, unless there are no brokers."""

    __slots__ = ()

    may_leave_unplaced: ClassVar[bool] = False
    keeps_limits: ClassVar[bool] = False

    def place(self, problem: Problem) -> Placement:
        return Placement("client", self.homes(problem) if problem.brokers else nowhere(problem.units))

    def homes(self, problem: Problem) -> Rows:
        """The broker of every client; there is at least one."""
        raise NotImplementedError


def nowhere(clients: int) -> Rows:
    """No client has a home. Read-only like all inputs of policies, since kernels are compiled for read-only arrays."""
    homes = np.full(clients, UNPLACED, np.int32)
    homes.flags.writeable = False
    return homes
