"""The base class of topic policies."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from trimtab.model.placement import Placement
from trimtab.place.client.policy import nowhere
from trimtab.place.topic.bounds import fewest, most_use
from trimtab.place.topic.instance import Instance

if TYPE_CHECKING:
    from trimtab.model.problem import Problem
    from trimtab.predict.model import LatencyModel

    Groups = list[tuple[int, list[int]]]  # brokers and their topics


class TopicPolicy:
    """Gives every topic a broker with at most ``k`` topics, or leaves it unplaced where no broker is left for it."""

    __slots__ = ()

    may_leave_unplaced: ClassVar[bool] = True
    keeps_limits: ClassVar[bool] = False
    k: int
    model: LatencyModel | None

    def place(self, problem: Problem) -> Placement:
        instance = Instance.of(problem, self.k, self.model)
        if not problem.brokers:
            return Placement("topic", nowhere(problem.units), fewest(instance, 0, 1.0))
        groups = self.groups(instance)
        placed = sum(len(members) for _, members in groups)
        return instance.placement(groups, fewest(instance, placed, most_use(instance)))

    def groups(self, instance: Instance) -> Groups:
        """Topics by broker."""
        raise NotImplementedError
