"""``trimtab rebalance``: a plan now; carried out if asked to."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_fleet
from trimtab.cli.why import with_record
from trimtab.errors import Unreachable

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
    asked = {"verb": "rebalance", "apply": apply, "policy": policy, "budget": budget, "reason": reason}
    answer = with_fleet(home, lambda ask: ask("admin.control", asked))
    if answer["applied"] and wait:
        answer["outcome"] = follow(home, answer["plan"]["number"], quiet=as_json)
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
    title = f"plan {plan['number']}, {_became(answer)}: {len(plan['steps']):,} clients"
    before, then = plan["before"], plan["predicted"]
    note = (
        f"highest load {before['max_load']:,.0f} -> {then['max_load']:,.0f} bytes/s, spread {before['spread']:.3f} -> "
        f"{then['spread']:.3f}"
    )
    if not answer["applied"]:
        note += "; carry it out with --apply" if plan["steps"] else "; there is nothing to carry out"
    output.print_table(title, ["from", "to", "clients"], rows, left=range(2), note=note)


def _became(answer: dict[str, Any]) -> str:
    if not answer["applied"]:
        return "not carried out"
    if "outcome" not in answer:
        return "begun"
    count = Counter(answer["outcome"])
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
                    progress = (await ask("admin.control", {"verb": "status"}))["progress"]
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
