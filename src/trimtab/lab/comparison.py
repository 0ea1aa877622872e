"""Policies of one family on one workload, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trimtab.errors import BadInput, MissingColumn, TooLarge
from trimtab.lab.answer import Answer, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from trimtab.model.placement import Bound
    from trimtab.model.problem import Problem

QUESTIONS: Final = {
    "received": "most data received within every broker's bandwidth",
    "max_load": "least maximum load, with few moves",
    "delay": "least delay of notifications",
    "brokers_used": "fewest brokers with every topic inside its latency bound",
    "violating_pairs": "fewest pairs of publisher and subscriber out of their latency bound",
}


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Answers in the order of the policies given, and the tightest bound that any of them proved."""

    problem: Problem
    answers: tuple[Answer, ...]
    refused: dict[str, str]  # policy -> reason why it gave no answer

    @property
    def bound(self) -> Bound:
        """The tightest bound that holds for all answers.

        A policy may prove a bound on brokers for placements within its own margin; a policy without it can be below.
        """
        bounds = [answer.bound for answer in self.answers]
        by_pairs = [bound for bound in bounds if bound.figure == "violating_pairs"]
        bounds = by_pairs or bounds  # topics near their clients, among policies that count brokers
        if bounds[0].figure == "brokers_used":
            fewest = min(answer.achieved for answer in self.answers)
            bounds = [bound for bound in bounds if bound.value <= fewest] or [min(bounds, key=lambda each: each.value)]
        tightest = min if bounds[0].more_is_better else max
        return tightest(bounds, key=lambda bound: bound.value)

    @property
    def question(self) -> str:
        return QUESTIONS[self.bound.figure]

    def as_json(self) -> dict[str, Any]:
        best = self.bound
        return {
            "bound": {"kind": best.kind, "figure": best.figure, "value": best.value},
            "policies": [a.as_json() | {"gap": a.gap(best)} for a in self.answers],
            "refused": self.refused,
        }


def compare(
    problem: Problem,
    knobs: Mapping[str, Mapping[str, Any]],
    *,
    time_limit_s: float | None,
    started: Callable[[str], None] = lambda name: None,
) -> Comparison:
    """Run every policy that ``knobs`` names, with its knobs.

    A policy is left out, with the reason, if the problem is too large for it or lacks a column that it needs.
    """
    answers, refused = [], {}
    for name, own in knobs.items():
        started(name)
        try:
            answers.append(ask(name, problem, time_limit_s=time_limit_s, **own))
        except (TooLarge, MissingColumn) as error:
            refused[name] = str(error)
    if not answers:
        raise BadInput("; ".join(dict.fromkeys(refused.values())))
    return Comparison(problem, tuple(answers), refused)
