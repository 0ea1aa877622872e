"""Policies of one family on one workload, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trimtab.errors import TooLarge
from trimtab.lab.answer import Answer, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trimtab.model.placement import Bound
    from trimtab.model.problem import Problem


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Answers in the order asked, held against the tightest bound that any of them proved."""

    problem: Problem
    answers: tuple[Answer, ...]
    refused: dict[str, str]  # policy -> why it did not answer

    @property
    def bound(self) -> Bound:
        return min((a.bound for a in self.answers), key=lambda bound: bound.value)

    def as_json(self) -> dict[str, Any]:
        best = self.bound
        return {
            "bound": {"kind": best.kind, "value": best.value},
            "policies": [a.as_json() | {"gap": a.gap(best)} for a in self.answers],
            "refused": self.refused,
        }


def compare(
    problem: Problem,
    names: Sequence[str],
    *,
    seed: int,
    time_limit_s: float | None,
    started: Callable[[str], None] = lambda name: None,
) -> Comparison:
    """Ask every policy; one that finds the problem too large for it is left out, with its reason."""
    answers, refused = [], {}
    for name in names:
        started(name)
        try:
            answers.append(ask(name, problem, seed=seed, time_limit_s=time_limit_s))
        except TooLarge as error:
            refused[name] = str(error)
    if not answers:
        raise TooLarge("; ".join(refused.values()))
    return Comparison(problem, tuple(answers), refused)
