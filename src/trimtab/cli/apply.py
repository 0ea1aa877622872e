"""``trimtab apply``: a placement file carried out on the running fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, reason_option, steps_bar, with_operator
from trimtab.cli.plan_table import end_of, gain, show_steps
from trimtab.fleet.operator.placement import changes
from trimtab.fleet.protocol import coding
from trimtab.model.folder import read_workload
from trimtab.model.placement_file import read_keys

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.operator import Operator
    from trimtab.fleet.operator.operator import Applied
    from trimtab.fleet.operator.placement import Changes
    from trimtab.model.key import Key

BY = {
    "controller": "through the controller; trimtab rollback takes it back",
    "keeper": "no controller answers, so the changes are made without one, and trimtab rollback does not know them",
}


@click.command()
@click.argument("workload", type=click.Path())
@click.argument("placement", type=click.Path())
@click.option("--yes", is_flag=True, help="Carry it out; without, it is only shown.")
@reason_option
@home_option
@output.json_option
def apply(workload: str, placement: str, yes: bool, reason: str, home: str | None, as_json: bool) -> None:
    """Bring the fleet of --home to PLACEMENT, a placement file of WORKLOAD with topics, clients or links.

    Links of topics that are placed by link are admitted where the file gives them a broker, and refused where it gives
    them none. A dry run, unless --yes. Exit code 1 if a move failed.
    """
    keys = read_keys(read_workload(workload), placement)
    with steps_bar("moving", quiet=as_json) as progress:
        found, applied = with_operator(home, lambda operator: _work(operator, keys, yes, reason, progress))
    if as_json:
        output.print_json(_answer(found, applied, yes))
    else:
        _show(placement, found, applied, yes)
    if any(state != "moved" for state in applied.states):
        raise SystemExit(1)


async def _work(
    operator: Operator, keys: dict[Key, str], yes: bool, reason: str, progress: Callable[[int, int], None]
) -> tuple[Changes, Applied]:
    found = changes(await operator.state(), keys)
    if yes:
        return found, await operator.apply(found, reason, progress)
    return found, await operator.preview(found, reason)


def _answer(found: Changes, applied: Applied, yes: bool) -> dict[str, Any]:
    return {
        "applied": yes, "by": applied.by, "plan": coding.plain(applied.plan), "steps": coding.plain(found.steps),
        "admitted": coding.plain(found.admitted), "refused": coding.plain(found.refused), "stay": found.stay,
        "outcome": list(applied.states),
    }  # fmt: skip


def _show(placement: str, found: Changes, applied: Applied, yes: bool) -> None:
    notes = []
    if found.steps and applied.plan is not None:
        notes.append(gain(applied.plan))
    links = [(len(found.admitted), "admitted"), (len(found.refused), "refused")]
    told = [f"{count:,} link{'s' if count > 1 else ''} {what}" for count, what in links if count]
    if told:
        notes.append("; ".join(told))
    if found.stay:
        notes.append(f"{found.stay:,} without a broker in the file stay where they are")
    if found.steps or told:
        notes.append(BY[applied.by])
        notes.append("" if yes else "nothing has changed; carry it out with --yes")
    else:
        notes.append("the fleet is as the file says")
    number = f"plan {applied.plan.number}, " if applied.plan is not None and applied.plan.number else ""
    became = f"{number}{end_of(applied.states)}" if yes else "not carried out"
    show_steps(f"{placement}, {became}", found.steps, "\n".join(note for note in notes if note))
