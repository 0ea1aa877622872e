"""``trimtab status``: what the controller is doing, and what it waits for."""

from __future__ import annotations

import time
from typing import Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import GetStatus


@click.command()
@home_option
@output.json_option
def status(home: str | None, as_json: bool) -> None:
    """Who leads, how level the fleet is, what was found, and how far the present plan is."""
    said = coding.plain(answer(home, GetStatus()))
    if as_json:
        output.print_json(said)
    else:
        show(said)


def show(said: dict[str, Any]) -> None:
    rows = [("leader", said["leader"]), ("says", said["says"])]
    if said["load"]:
        load = said["load"]
        rows.append(
            ("load", f"highest {load['max_load']:,.0f}, mean {load['mean']:,.0f} bytes/s, spread {load['spread']:.3f}")
        )
    rows.append(("measured", f"{time.time() - said['measured']:.0f} s ago" if said["measured"] else "not yet"))
    rows.append(("found", "; ".join(said["findings"]) or "nothing"))
    if said["paused"]:
        rows.append(("paused", said["paused"]))
    if said["why_not"]:
        rows.append(("not moving", said["why_not"]))
    if progress := said["progress"]:
        states = progress["states"]
        left = f", about {said['left_s']:.0f} s left" if said["left_s"] else ""
        count = {state: states.count(state) for state in ("moved", "moving", "waiting", "failed")}
        told = ", ".join(f"{number} {state}" for state, number in count.items())
        rows.append(("plan", f"{progress['plan']['number']}: {told}{left}; {said['at_once']} at once"))
    output.print_table("controller", ["", ""], rows, left=range(2))
