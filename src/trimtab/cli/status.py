"""``trimtab status``: what the controller is doing, and what it waits for."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.fleet.protocol import coding
from trimtab.model.key import counted

if TYPE_CHECKING:
    from trimtab.fleet.protocol.admin_verbs import ControllerStatus


@click.command()
@home_option
@output.json_option
def status(home: str | None, as_json: bool) -> None:
    """Who leads, how level the fleet is, what was found, and how far the present plan is."""
    found = with_operator(home, lambda operator: operator.status())
    if as_json:
        output.print_json(coding.plain(found))
    else:
        show(found)


def show(found: ControllerStatus) -> None:
    rows = [("leader", found.leader), ("says", found.says), ("policy", found.policy)]
    if load := found.load:
        figures = f"highest {load.max_load:,.0f}, mean {load.mean:,.0f} bytes/s, spread {load.spread:.3f}"
        rows.append(("load", figures))
        brokers = (f"{name} {each:,.0f}" for name, each in sorted(found.brokers.items()))
        rows.append(("of brokers", f"{', '.join(brokers)} bytes/s"))
    rows.append(("measured", f"{time.time() - found.measured:.0f} s ago" if found.measured else "not yet"))
    rows.append(("found", "; ".join(found.findings) or "nothing"))
    if found.paused:
        rows.append(("paused", found.paused))
    if found.why_not:
        rows.append(("not moving", found.why_not))
    if found.cordoned:
        rows.append(("cordoned", f"{', '.join(found.cordoned)}; end it with trimtab uncordon BROKER"))
    if found.waiting:
        waits = (f"topic {topic} waits for {broker}" for topic, broker in sorted(found.waiting.items()))
        rows.append(("waiting", "; ".join(waits)))
    if found.leaving:
        rows.append(("leaving", ", ".join(found.leaving)))
    if progress := found.progress:
        count = {state: progress.states.count(state) for state in ("moved", "moving", "waiting", "failed")}
        states = ", ".join(f"{number} {state}" for state, number in count.items())
        left = f", about {found.left_s:.0f} s left" if found.left_s else ""
        keys = counted(step.key for step in progress.plan.steps)
        rows.append(("plan", f"{progress.plan.number}, {keys}: {states}{left}; {found.at_once} at once"))
    output.print_table("controller", ["", ""], rows, left=range(2), wrap=(1,))
