"""``trimtab rebalance``: a plan now; carried out if asked to."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli import output
from trimtab.cli.fleet import answer, home_option, with_fleet
from trimtab.cli.why import with_record
from trimtab.errors import Unreachable
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import GetStatus, Rebalance

if TYPE_CHECKING:
    from trimtab.cli.fleet import Ask
    from trimtab.control.record import Record

LOOK_S: Final = 0.2
LEADER_S: Final = 10.0  # in which another controller must have taken over


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
    reply = coding.plain(answer(home, Rebalance(apply, policy, budget, reason)))
    if reply["applied"] and wait:
        reply["outcome"] = follow(home, reply["plan"]["number"], quiet=as_json)
    if as_json:
        output.print_json(reply)
    else:
        show(reply)


def show(reply: dict[str, Any]) -> None:
    plan = reply["plan"]
    if plan is None:
        click.echo(f"nothing moves: {reply['why_not']}")
        return
    count = Counter((source or "-", target) for _, source, target in plan["steps"])
    rows = [(source, target, f"{number:,}") for (source, target), number in sorted(count.items())]
    title = f"plan {plan['number']}, {_became(reply)}: {len(plan['steps']):,} clients"
    before, then = plan["before"], plan["predicted"]
    note = (
        f"highest load {before['max_load']:,.0f} -> {then['max_load']:,.0f} bytes/s, spread {before['spread']:.3f} -> "
        f"{then['spread']:.3f}"
    )
    if not reply["applied"]:
        note += "; carry it out with --apply" if plan["steps"] else "; there is nothing to carry out"
    output.print_table(title, ["from", "to", "clients"], rows, left=range(2), note=note)


def _became(reply: dict[str, Any]) -> str:
    if not reply["applied"]:
        return "not carried out"
    if "outcome" not in reply:
        return "begun"
    count = Counter(reply["outcome"])
    if set(count) <= {"moved"}:
        return "carried out"
    return ", ".join(f"{number:,} {state}" for state, number in count.items())


def follow(home: str | None, number: int, *, quiet: bool) -> list[str]:
    """Until a plan is over, with a bar; what has become of every step. Controllers may take turns meanwhile."""

    async def finished(record: Record) -> list[str]:
        said: list[str] = ((await record.decision(number))["outcome"] or {}).get("states", [])
        return said

    async def watch(ask: Ask) -> None:
        with output.progress(quiet=quiet) as bar:
            task = bar.add_task(f"plan {number}", total=None)
            waited = 0.0
            while True:
                await asyncio.sleep(LOOK_S)
                try:
                    progress = (await ask(GetStatus())).progress
                except Unreachable:
                    waited += LOOK_S
                    if waited > LEADER_S:
                        raise
                    continue
                if progress is None or progress["plan"]["number"] != number:
                    return
                waited = 0.0
                done = sum(state in ("moved", "failed", "dropped") for state in progress["states"])
                bar.update(task, completed=done, total=len(progress["states"]))

    with_fleet(home, watch)
    return list(with_record(home, finished))
