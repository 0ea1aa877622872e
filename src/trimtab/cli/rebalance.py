"""``trimtab rebalance``: computes a plan now, and carries it out with --apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, reason_option, steps_bar, with_operator
from trimtab.cli.numbers import Number
from trimtab.cli.plan_table import end_of, gain, show_steps
from trimtab.cli.policy_options import set_option
from trimtab.fleet.protocol import coding
from trimtab.place.knobs import parse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trimtab.fleet.operator import Operator
    from trimtab.fleet.protocol.admin_verbs import PlanReply


@click.command()
@click.option("--apply", is_flag=True, help="Carry out the plan; without it, the plan is only shown.")
@click.option("--policy", help="Policy of the family client [default: the controller's].")
@click.option(
    "--budget", type=Number(0, 1), metavar="SHARE",
    help="Share of the topics, clients and links that may move [default: all].",
)  # fmt: skip
@set_option
@reason_option
@click.option(
    "--wait/--no-wait", default=True, show_default=True, help="With --apply, wait until the plan is carried out."
)
@home_option
@output.json_option
def rebalance(
    apply: bool, policy: str | None, budget: float | None, assignments: tuple[str, ...], reason: str, wait: bool,
    home: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show what the controller would move now, whatever its goals find. A dry run, unless --apply."""

    async def request_plan(operator: Operator) -> PlanReply:
        knobs = None
        if assignments:
            policy_name = policy or (await operator.status()).policy
            knobs = parse(output.named_policy("client", policy_name), assignments)
        return await operator.rebalance(apply=apply, policy=policy, budget=budget, reason=reason, knobs=knobs)

    carry_out(home, request_plan, wait=wait, as_json=as_json)


def carry_out(
    home: str | None, request_plan: Callable[[Operator], Awaitable[PlanReply]], *, wait: bool, as_json: bool
) -> None:  # fmt: skip
    """Request a plan, follow it if it was started, and show it."""
    with steps_bar("planning", quiet=as_json) as progress:

        async def work(operator: Operator) -> tuple[PlanReply, list[str] | None]:
            reply = await request_plan(operator)
            follow = reply.applied and wait and reply.plan is not None
            if follow and reply.plan is not None:
                return reply, (await operator.follow(reply.plan.number, progress)).states
            return reply, None

        reply, states = with_operator(home, work)
    if as_json:
        fields: dict[str, Any] = coding.plain(reply)
        output.print_json(fields | ({"outcome": states} if states is not None else {}))
        return
    plan = reply.plan
    if plan is None:
        click.echo(f"nothing moves: {reply.why_not}")
        return
    outcome = "not carried out" if not reply.applied else "begun" if states is None else end_of(states)
    note = gain(plan)
    if not reply.applied:
        note += "; carry it out with --apply" if plan.steps else "; there is nothing to carry out"
    show_steps(f"plan {plan.number}, {outcome}", [*plan.steps, *plan.links], note)
