"""Output of the controller's plans."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from trimtab.cli import output
from trimtab.model.key import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.fleet.protocol.plans import Levels, Plan, Step


def show_steps(title: str, steps: Sequence[Step], note: str) -> None:
    """Print the number of keys per source and target broker."""
    pairs: dict[tuple[str, str], list[Step]] = {}
    for step in steps:
        pairs.setdefault((step.source or "-", step.target or "-"), []).append(step)
    rows = [(source, target, counted(step.key for step in pairs[source, target])) for source, target in sorted(pairs)]
    output.print_table(f"{title}: {counted(step.key for step in steps)}", ["from", "to", "keys"], rows, left=range(3),
                       note=note)  # fmt: skip


def gain(plan: Plan) -> str:
    """The predicted effect of a plan."""
    before, predicted = plan.before, plan.predicted
    if not before.mean:
        return "there is no measurement, so the effect is unknown"
    return (
        f"highest load {before.max_load:,.0f} -> {predicted.max_load:,.0f} bytes/s, spread {before.spread:.3f} -> "
        f"{predicted.spread:.3f}"
    )


def end_of(states: Sequence[str]) -> str:
    """The outcome of a plan, from the states of its steps."""
    count = Counter(states)
    if set(count) <= {"moved"}:
        return "carried out"
    return ", ".join(f"{number:,} {state}" for state, number in count.items())


def levels(record: Levels) -> str:
    return f"highest load {record.max_load:,.0f} bytes/s, mean {record.mean:,.0f}, spread {record.spread:.3f}"
