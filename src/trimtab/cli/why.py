"""``trimtab why``: explains a decision: its input, its predicted effect and its measured effect."""

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
@click.option("--replay", is_flag=True,
              help="Repeat the decision from its stored input, and compare; exit code 1 if it differs.")  # fmt: skip
@home_option
@output.json_option
def why(what: tuple[str, ...], replay: bool, home: str | None, as_json: bool) -> None:
    """Explain why WHAT was moved: a topic, a client, TOPIC CLIENT of a link, a move's id, or a decision's number."""

    async def find(operator: Operator) -> tuple[Decision, int | None, bool | None]:
        decision, step = await operator.find_decision(" ".join(what))
        return decision, step, await _same_again(operator, decision) if replay else None

    decision, step, identical = with_operator(home, find)
    if as_json:
        output.print_json(as_json_value(decision) | {"step": step, "same_again": identical})
    else:
        _show(decision, step)
        if identical is not None:
            click.echo("decided again from what was kept: " + ("the same" if identical else "NOT the same"))
    if identical is False:
        raise SystemExit(1)


async def _same_again(operator: Operator, decision: Decision) -> bool:
    from trimtab.control.replay import replay

    return (await replay(operator.connection, decision))[1]


def _show(decision: Decision, step_row: int | None) -> None:
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
            ("moves", _moves(plan, outcome)),
        ]  # fmt: skip
        if plan.links:
            rows.append(("links", _links(plan, outcome)))
        if outcome is not None and outcome.stopped:
            rows.append(("remaining steps", f"dropped: {outcome.stopped}"))
        if step_row is not None:
            rows.append(("this move", _step(plan, step_row, outcome)))
    output.print_table(f"decision {question.number}", ["", ""], rows, left=range(2))


def _measured(outcome: Outcome | None) -> list[tuple[str, str]]:
    if outcome is None:
        return [("measured", "not yet")]
    never = f"never: {outcome.unmeasured}" if outcome.unmeasured else "not yet"
    rows = [("measured", levels(outcome.measured) if outcome.measured else never)]
    if outcome.reported_after and outcome.reported_before:
        spread = f"spread {outcome.reported_before.spread:.3f} -> {outcome.reported_after.spread:.3f}"
        rows.append(("by brokers' reports", f"{spread}, including all traffic that they forward"))
    if isinstance(outcome.helped, bool):
        rows.append(("helped", "yes" if outcome.helped else "no, less than half of the prediction"))
    return rows


def _moves(plan: Plan, outcome: Outcome | None) -> str:
    """``3 topics and 12 clients: 14 moved, 1 failed``."""
    if not plan.steps:
        return "none"
    states = outcome.states if outcome else []
    count = {state: states.count(state) for state in dict.fromkeys(states)}
    text = ", ".join(f"{number:,} {state}" for state, number in count.items()) or "under way"
    return f"{counted(step.key for step in plan.steps)}: {text}"


def _links(plan: Plan, outcome: Outcome | None) -> str:
    """``2 admitted, 1 refused: placed``."""
    admitted = sum(bool(link.target) for link in plan.links)
    counts = [(admitted, "admitted"), (len(plan.links) - admitted, "refused")]
    return ", ".join(f"{count:,} {what}" for count, what in counts if count) + f": {_links_state(outcome)}"


def _links_state(outcome: Outcome | None) -> str:
    return outcome.links if outcome is not None and outcome.links else "under way"


def _step(plan: Plan, row: int, outcome: Outcome | None) -> str:
    """One step of a plan, or one of its links, which come after the steps."""
    if row >= len(plan.steps):
        link = plan.links[row - len(plan.steps)]
        change = f"admitted at {link.target}" if link.target else f"refused; it was at {link.source or 'no broker'}"
        return f"{link.key} {change}: {_links_state(outcome)}"
    step, states = plan.steps[row], outcome.states if outcome else []
    state = states[row] if row < len(states) else "under way"
    return f"{step.key} from {step.source or 'a broker that was not alive'} to {step.target}: {state}"


def _binding(plan: Plan, measured: float | None) -> str:
    """The scarcest resource before the plan, as predicted, and as measured."""
    binding = plan.binding
    if binding is None:
        lost = any(not step.source for step in plan.steps)
        return "keys without a living broker" if lost else "nothing: an operator requested the plan"
    load = binding.resource == "load"
    figures = [binding.now, binding.predicted, *([measured] if measured is not None else [])]
    texts = [f"{figure:.2f} x the mean" if load else f"{figure:.0%}" for figure in figures]
    names = ("", " as predicted", " as measured")
    return f"{binding.resource} of {binding.broker}: " + ", ".join(map("".join, zip(texts, names, strict=False)))


def _allowed(question: Question, left: int) -> str:
    if question.leaving:
        return f"only moves off '{question.leaving}'"
    if question.only_lost:
        return "only moves of keys without a living broker"
    rules = [f"{question.most:,} moves" + (f", {left:,} more were wanted" if left else "")]
    if question.frozen:
        rules.append(f"{counted(question.frozen)} moved recently and must stay")
    if question.unfit:
        rules.append(f"no moves to {', '.join(question.unfit)}, cordoned or in trouble")
    return "; ".join(rules)
