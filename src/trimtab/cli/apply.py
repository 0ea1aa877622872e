"""``trimtab apply``: a placement file carried out on the running fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, reason_option, steps_bar, with_operator
from trimtab.cli.plan_table import end_of, gain, show_steps
from trimtab.fleet.operator.placement import changes
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.plans import Step
from trimtab.model.folder import read_workload
from trimtab.model.key import Key
from trimtab.model.placement_file import read_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.operator import Operator
    from trimtab.fleet.operator.operator import Applied
    from trimtab.fleet.operator.placement import Changes

BY = {
    "controller": "through the controller; trimtab rollback takes it back",
    "keeper": "no controller answers, so the changes are made without one, and trimtab rollback does not know them",
}


@click.command()
@click.argument("workload", type=click.Path())
@click.argument("placement", type=click.Path())
@click.option("--yes", is_flag=True, help="Carry out the changes; without it, they are only shown.")
@reason_option
@home_option
@output.json_option
def apply(workload: str, placement: str, yes: bool, reason: str, home: str | None, as_json: bool) -> None:
    """Bring the fleet of --home to PLACEMENT, a placement file of WORKLOAD with topics, clients or links.

    Links of topics that are placed by link are admitted if the file gives them a broker, and refused if it gives them
    none. Without --yes, this is a dry run. Exit code 1 if a move failed.
    """
    keys = read_keys(read_workload(workload), placement)
    with steps_bar("moving", quiet=as_json) as progress:
        plan_changes, applied = with_operator(home, lambda operator: _work(operator, keys, yes, reason, progress))
    if as_json:
        output.print_json(_answer(plan_changes, applied, yes))
    else:
        _show(placement, plan_changes, applied, yes)
    if any(state != "moved" for state in applied.states):
        raise SystemExit(1)


async def _work(
    operator: Operator, keys: dict[Key, str], yes: bool, reason: str, progress: Callable[[int, int], None]
) -> tuple[Changes, Applied]:
    plan_changes = changes(await operator.state(), keys)
    if yes:
        return plan_changes, await operator.apply(plan_changes, reason, progress)
    return plan_changes, await operator.preview(plan_changes, reason)


def _answer(plan_changes: Changes, applied: Applied, yes: bool) -> dict[str, Any]:
    return {
        "applied": yes, "by": applied.by, "plan": coding.plain(applied.plan), "steps": coding.plain(plan_changes.steps),
        "admitted": coding.plain(plan_changes.admitted), "refused": coding.plain(plan_changes.refused),
        "stay": plan_changes.stay, "outcome": list(applied.states),
    }  # fmt: skip


def _show(placement: str, plan_changes: Changes, applied: Applied, yes: bool) -> None:
    notes = []
    if plan_changes.steps and applied.plan is not None:
        notes.append(gain(applied.plan))
    links = [(len(plan_changes.admitted), "admitted"), (len(plan_changes.refused), "refused")]
    link_counts = [f"{count:,} link{'s' if count > 1 else ''} {what}" for count, what in links if count]
    if link_counts:
        notes.append("; ".join(link_counts))
    if plan_changes.stay:
        notes.append(f"{plan_changes.stay:,} without a broker in the file stay where they are")
    if plan_changes.steps or link_counts:
        notes.append(BY[applied.by])
        notes.append("" if yes else "nothing has changed; carry it out with --yes")
    else:
        notes.append("the fleet is as the file says")
    number = f"plan {applied.plan.number}, " if applied.plan is not None and applied.plan.number else ""
    outcome = f"{number}{end_of(applied.states)}" if yes else "not carried out"
    steps = [*plan_changes.steps, *_as_steps(plan_changes)]
    show_steps(f"{placement}, {outcome}", steps, "\n".join(note for note in notes if note))


def _as_steps(plan_changes: Changes) -> list[Step]:
    """Admitted and refused links in the form of moves: from no broker, and to none."""
    links = [Key("link", link.topic, link.client) for link in (*plan_changes.admitted, *plan_changes.refused)]
    targets = [*(link.broker for link in plan_changes.admitted), *("" for _ in plan_changes.refused)]
    return [Step.of(key, "", target) for key, target in zip(links, targets, strict=True)]
