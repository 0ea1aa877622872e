"""``trimtab why``: what a decision was made from, what it should have brought, and what it did."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.decisions import as_json_value
from trimtab.cli.fleet import home_option, with_operator
from trimtab.cli.plan_table import levels
from trimtab.model.key import counted

if TYPE_CHECKING:
    from trimtab.fleet.operator import Operator
    from trimtab.fleet.protocol.plans import Decision, Outcome, Plan, Question


@click.command()
@click.argument("what", nargs=-1, required=True)
@click.option("--replay", is_flag=True, help="Decide again from what was kept, and compare; exit code 1 if it differs.")
@home_option
@output.json_option
def why(what: tuple[str, ...], replay: bool, home: str | None, as_json: bool) -> None:
    """Why WHAT was moved: a topic, a client, TOPIC CLIENT of a link, a move's id, or the number of a decision."""

    async def look(operator: Operator) -> tuple[Decision, int | None, bool | None]:
        decision, at = await operator.find_decision(" ".join(what))
        return decision, at, await _same_again(operator, decision) if replay else None

    decision, at, same = with_operator(home, look)
    if as_json:
        output.print_json(as_json_value(decision) | {"step": at, "same_again": same})
    else:
        _show(decision, at)
        if same is not None:
            click.echo("decided again from what was kept: " + ("the same" if same else "NOT the same"))
    if same is False:
        raise SystemExit(1)


async def _same_again(operator: Operator, decision: Decision) -> bool:
    from trimtab.control.replay import replay

    return (await replay(operator.connection, decision))[1]


def _show(decision: Decision, at: int | None) -> None:
    question, plan, outcome = decision.question, decision.plan, decision.outcome
    rows = [
        ("decided", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(question.at))),
        ("because", "\n".join(question.reasons)),
    ]
    if plan is None:
        rows.append(("nothing moved", decision.why_not))
    else:
        rows += [
            ("binding", _binding(plan, outcome.binding if outcome else None)),
            ("policy", plan.policy), ("allowed", _allowed(question, plan.left)),
            ("before", levels(plan.before)), ("predicted", levels(plan.predicted)), *_measured(outcome),
            ("moves", _moves(plan, outcome.states if outcome else [])),
        ]  # fmt: skip
        if outcome is not None and outcome.stopped:
            rows.append(("the rest", f"dropped: {outcome.stopped}"))
        if at is not None:
            step, states = plan.steps[at], outcome.states if outcome else []
            state = states[at] if at < len(states) else "under way"
            source = step.source or "a broker that was not alive"
            rows.append(("this one", f"{step.key} from {source} to {step.target}: {state}"))
    output.print_table(f"decision {question.number}", ["", ""], rows, left=range(2))


def _measured(outcome: Outcome | None) -> list[tuple[str, str]]:
    if outcome is None:
        return [("measured", "not yet")]
    never = f"never: {outcome.unmeasured}" if outcome.unmeasured else "not yet"
    rows = [("measured", levels(outcome.measured) if outcome.measured else never)]
    if outcome.reported_after and outcome.reported_before:
        spread = f"spread {outcome.reported_before.spread:.3f} -> {outcome.reported_after.spread:.3f}"
        rows.append(("by brokers' reports", f"{spread}, with all that passes through them"))
    if isinstance(outcome.helped, bool):
        rows.append(("it helped", "yes" if outcome.helped else "no, not half of what was predicted"))
    return rows


def _moves(plan: Plan, states: list[str]) -> str:
    """``3 topics and 12 clients: 14 moved, 1 failed``."""
    count = {state: states.count(state) for state in dict.fromkeys(states)}
    became = ", ".join(f"{number:,} {state}" for state, number in count.items()) or "under way"
    return f"{counted(step.key for step in plan.steps)}: {became}"


def _binding(plan: Plan, measured: float | None) -> str:
    """What there was least of, then as predicted, then as measured."""
    binding = plan.binding
    if binding is None:
        lost = any(not step.source for step in plan.steps)
        return "that everything has a broker" if lost else "nothing: the plan was asked for"
    load = binding.resource == "load"
    figures = [binding.now, binding.predicted, *([measured] if measured is not None else [])]
    shown = [f"{each:.2f} x the mean" if load else f"{each:.0%}" for each in figures]
    names = ("", " as predicted", " as measured")
    return f"{binding.resource} of {binding.broker}: " + ", ".join(map("".join, zip(shown, names, strict=False)))


def _allowed(question: Question, left: int) -> str:
    if question.leaving:
        return f"everything off '{question.leaving}', and nothing else"
    if question.only_lost:
        return "whatever had no broker, and nothing else"
    rules = [f"{question.most:,} moves" + (f", {left:,} more were wanted" if left else "")]
    if question.frozen:
        rules.append(f"{counted(question.frozen)} had moved not long ago")
    if question.unfit:
        rules.append(f"nothing to {', '.join(question.unfit)}, cordoned or in trouble")
    return "; ".join(rules)
