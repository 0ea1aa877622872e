"""``trimtab status``: the state of the controller."""

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
    """Show the leader, the balance of the fleet, the findings, and the progress of the current plan."""
    controller = with_operator(home, lambda operator: operator.status())
    if as_json:
        output.print_json(coding.plain(controller))
    else:
        show(controller)


def show(controller: ControllerStatus) -> None:
    rows = [("leader", controller.leader), ("state", controller.says), ("policy", controller.policy)]
    if load := controller.load:
        levels = f"highest {load.max_load:,.0f}, mean {load.mean:,.0f} bytes/s, spread {load.spread:.3f}"
        rows.append(("load", levels))
        brokers = (f"{name} {load_:,.0f}" for name, load_ in sorted(controller.brokers.items()))
        rows.append(("of brokers", f"{', '.join(brokers)} bytes/s"))
    rows.append(("measured", f"{time.time() - controller.measured:.0f} s ago" if controller.measured else "not yet"))
    rows.append(
        (
            "findings",
            "; ".join(controller.findings) or ("nothing" if controller.measured else "unknown without a measurement"),
        )
    )
    if controller.paused:
        rows.append(("paused", controller.paused))
    if controller.why_not:
        rows.append(("not moving", controller.why_not))
    if controller.cordoned:
        rows.append(("cordoned", f"{', '.join(controller.cordoned)}; end it with trimtab uncordon BROKER"))
    if controller.waiting:
        waits = (f"topic {topic} waits for {broker}" for topic, broker in sorted(controller.waiting.items()))
        rows.append(("waiting", "; ".join(waits)))
    if controller.leaving:
        rows.append(("leaving", ", ".join(controller.leaving)))
    if progress := controller.progress:
        count = {state: progress.states.count(state) for state in ("moved", "moving", "waiting", "failed")}
        states = ", ".join(f"{number} {state}" for state, number in count.items())
        left = f", about {controller.left_s:.0f} s left" if controller.left_s else ""
        keys = counted(step.key for step in progress.plan.steps)
        rows.append(("plan", f"{progress.plan.number}, {keys}: {states}{left}; {controller.at_once} at once"))
    output.print_table("controller", ["", ""], rows, left=range(2), wrap=(1,))
