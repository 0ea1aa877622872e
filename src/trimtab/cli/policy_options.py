"""Options of the commands that run policies on a workload folder: ``plan`` and ``compare``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from trimtab.cli import output
from trimtab.cli.numbers import Number
from trimtab.errors import BadInput, UnknownName
from trimtab.place.knobs import knobs, parse, shown, split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

set_option = click.option(
    "--set", "assignments", multiple=True, metavar="KNOB=VALUE",
    help="Set a knob of the policy, or POLICY.KNOB=VALUE of one of several; repeatable. See `trimtab policies`.",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The values of the options, for any policies."""

    current: str | None  # placement file
    time_limit_s: float
    knob_options: dict[str, Any]  # knobs that have an option of their own
    assignments: tuple[str, ...]  # values of --set
    leg: float  # share of a round-trip time

    def knobs(self, family: str, policies: Sequence[str]) -> dict[str, dict[str, Any]]:
        """The knobs for each of the policies, all of one family.

        ``POLICY.KNOB=VALUE`` sets a knob of one policy and takes precedence over ``KNOB=VALUE``, which sets it of all
        policies that have it. Knobs with an option of their own are offered to all: they are part of the question.
        """
        for knob in ("objective", "budget"):
            if knob in self.knob_options and family != "client":
                raise BadInput(f"--{knob} is about homes of clients; family '{family}' does not know it")
        common, single = self._scoped(family, policies)
        values = {name: self._common(name, common, len(policies)) for name in policies}
        self._refuse_unknown(common, policies)
        question = {
            knob: value for knob_values in values.values() for knob, value in knob_values.items() if knob == "objective"
        }
        for name in policies:
            values[name] = self.knob_options | question | values[name] | parse(name, single.get(name, ()))
        if self.current is None and any(knob_values.get("budget") is not None for knob_values in values.values()):
            raise BadInput("budget says how many clients may move; where they are now is missing: --current PLACEMENT")
        return values

    def _scoped(self, family: str, policies: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
        """Assignments for all policies, and those for single ones."""
        common: list[str] = []
        single: dict[str, list[str]] = {}
        for assignment in self.assignments:
            target, text = split(assignment)
            policy, _, knob = target.rpartition(".")
            if knob in self.knob_options:
                raise BadInput(f"knob {knob} is set twice: by --{knob} and by --set {assignment}")
            if not policy:
                common.append(assignment)
                continue
            name = output.named_policy(family, policy)
            if name not in policies:
                raise BadInput(f"--set {assignment}: {name} is not among the policies: {', '.join(policies)}")
            if knob == "objective" and len(policies) > 1:
                raise BadInput(f"--set {assignment}: all policies are compared on one objective: --objective {text}")
            single.setdefault(name, []).append(f"{knob}={text}")
        return common, single

    def _common(self, policy: str, assignments: list[str], policies: int) -> dict[str, Any]:
        own = {knob.name for knob in knobs(policy)}
        return parse(policy, [assignment for assignment in assignments if policies == 1 or split(assignment)[0] in own])

    def _refuse_unknown(self, assignments: list[str], policies: Sequence[str]) -> None:
        known_knobs = dict.fromkeys(knob.name for policy in policies for knob in knobs(policy))
        for assignment in assignments:
            knob = split(assignment)[0]
            if knob not in known_knobs:
                raise UnknownName("knob of these policies", knob, known_knobs)


def policy_options(time_limit_s: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options to a command, which gets them as ``options``."""

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(
            *, current: str | None, objective: str | None, budget: float | None, seed: int, time_limit: float,
            assignments: tuple[str, ...], leg: float, **others: Any,
        ) -> None:  # fmt: skip
            knob_options: dict[str, Any] = {}
            if objective is not None:
                knob_options["objective"] = objective
            if budget is not None:
                knob_options["budget"] = budget
            if click.get_current_context().get_parameter_source("seed") is not ParameterSource.DEFAULT:
                knob_options["seed"] = seed
            command(options=PolicyOptions(current, time_limit, knob_options, assignments, leg), **others)

        decorated: Callable[..., None] = run
        options = (
            output.current_option, output.leg_option, _objective_option, _budget_option, output.seed_option, set_option,
            _time_limit_option(time_limit_s),
        )  # fmt: skip
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return with_options


def setting(knobs: Mapping[str, Any]) -> str:
    """Knobs and their values, as on the command line."""
    return ", ".join(f"{knob}={shown(value)}" for knob, value in knobs.items())


def _share(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    if value is not None and not 0.0 <= value <= 1.0:
        raise click.BadParameter(f"{value:g} is not a share from 0 to 1")
    return value


_budget_option = click.option(
    "--budget", type=Number(), callback=_share, metavar="SHARE",
    help="Share of the clients that may move from --current, from 0 to 1 [default: as few as necessary].",
)  # fmt: skip
_objective_option = click.option(
    "--objective", type=click.Choice(["load", "delay", "both"]),
    help="Objective of the choice of clients' homes: the least maximum load (default), the least delay, or the least "
    "delay with a load of at most 1.1 times the least.",
)  # fmt: skip


def _time_limit_option(default: float) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(
        "--time-limit", type=Number(min=0.0, infinite=True), default=default, show_default=True, metavar="S",
        help="Seconds a search may take.",
    )  # fmt: skip
