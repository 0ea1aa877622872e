"""``trimtab rebalance``: a plan now; carried out if asked to."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_fleet

if TYPE_CHECKING:
    from trimtab.cli.fleet import Ask


@click.command()
@click.option("--apply", is_flag=True, help="Carry it out; without, it is only shown.")
@click.option("--policy", help="Of the family client [default: the controller's].")
@click.option(
    "--budget", type=click.FloatRange(0, 1), metavar="SHARE", help="Of the clients that may move [default: all]."
)
@click.option("--reason", default="", help="Why, for the record.")
@click.option("--wait/--no-wait", default=True, show_default=True, help="With --apply, until it is over.")
@home_option
@output.json_option
def rebalance(
    apply: bool, policy: str | None, budget: float | None, reason: str, wait: bool, home: str | None, as_json: bool
) -> None:
    """What the controller would move now, whatever its detectors say. A dry run, unless --apply."""
    asked = {"verb": "rebalance", "apply": apply, "policy": policy, "budget": budget, "reason": reason}
    answer = with_fleet(home, lambda ask: ask("admin.control", asked))
    if answer["applied"] and wait:
        with_fleet(home, lambda ask: follow(ask, answer["plan"]["number"], quiet=as_json))
    if as_json:
        output.print_json(answer)
    else:
        show(answer)


def show(answer: dict[str, Any]) -> None:
    plan = answer["plan"]
    if plan is None:
        click.echo(f"nothing moves: {answer['why_not']}")
        return
    count = Counter((source or "-", target) for _, source, target in plan["steps"])
    rows = [(source, target, f"{number:,}") for (source, target), number in sorted(count.items())]
    done = "carried out" if answer["applied"] else "not carried out"
    title = f"plan {plan['number']}, {done}: {len(plan['steps']):,} clients"
    before, then = plan["before"], plan["predicted"]
    note = (
        f"highest load {before['max_load']:,.0f} -> {then['max_load']:,.0f} bytes/s, spread {before['spread']:.3f} -> "
        f"{then['spread']:.3f}"
    )
    note += "" if answer["applied"] else "; carry it out with --apply"
    output.print_table(title, ["from", "to", "clients"], rows, left=range(2), note=note)


async def follow(ask: Ask, number: int, *, quiet: bool) -> None:
    """Until a plan is over, with a bar."""
    with output.progress(quiet=quiet) as bar:
        task = bar.add_task(f"plan {number}", total=None)
        while True:
            progress = (await ask("admin.control", {"verb": "status"}))["progress"]
            if progress is None or progress["plan"]["number"] != number:
                return
            done = sum(state in ("moved", "failed", "dropped") for state in progress["states"])
            bar.update(task, completed=done, total=len(progress["states"]))
            await asyncio.sleep(0.2)
