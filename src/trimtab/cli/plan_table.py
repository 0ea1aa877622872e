"""How the commands show a plan of the controller."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trimtab.cli import output
from trimtab.model.key import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.fleet.protocol.plans import Levels, Plan, Step


def show_steps(title: str, steps: Sequence[Step], note: str) -> None:
    """How many keys go from where to where."""
    ways: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        ways.setdefault((step.source or "-", step.target), []).append(step)
    rows = [(source, target, counted(step.key for step in ways[source, target])) for source, target in sorted(ways)]
    output.print_table(f"{title}: {counted(step.key for step in steps)}", ["from", "to", "what"], rows, left=range(3),
                       note=note)  # fmt: skip


def gain(plan: Plan) -> str:
    """What a plan should bring."""
    before, then = plan.before, plan.predicted
    if not before.mean:
        return "there is no measurement, so it is not known what it brings"
    return (
        f"highest load {before.max_load:,.0f} -> {then.max_load:,.0f} bytes/s, spread {before.spread:.3f} -> "
        f"{then.spread:.3f}"
    )


def end_of(states: Sequence[str]) -> str:
    """What has become of the steps of a plan."""
    count = Counter(states)
    if set(count) <= {"moved"}:
        return "carried out"
    return ", ".join(f"{number:,} {state}" for state, number in count.items())


def levels(each: Levels) -> str:
    return f"highest load {each.max_load:,.0f} bytes/s, mean {each.mean:,.0f}, spread {each.spread:.3f}"
