"""What ``plan`` and ``compare`` let people say about the question they put to policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trimtab.cli import output
from trimtab.cli.packed import packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.model.placement import Unit
    from trimtab.model.problem import Problem


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Where everything is now, what counts, and how long a policy may think."""

    current: str | None
    objective: str | None
    budget: float | None
    seed: int
    time_limit: float

    def knobs(self, family: str) -> dict[str, Any]:
        """Those of the policies of a family that were given."""
        return output.knobs(family, self.objective, self.budget, self.current)

    def problem(self, workload: str, unit: Unit) -> Problem:
        return output.problem_of(workload, unit, self.current)


def policy_options(time_limit_s: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options about the question, as one argument ``options``."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        made = packed("options", PolicyOptions)(command)
        made = output.seed_option(output.time_limit_option(time_limit_s)(made))
        return output.current_option(output.objective_option(output.budget_option(made)))

    return decorate
