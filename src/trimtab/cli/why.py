"""``trimtab why``: what a decision was made from, what it should have brought, and what it did."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_of, home_option

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trimtab.control.record import Record


@click.command()
@click.argument("move")
@click.option("--replay", is_flag=True, help="Decide again from what was kept, and compare; exit code 1 if it differs.")
@home_option
@output.json_option
def why(move: str, replay: bool, home: str | None, as_json: bool) -> None:
    """Why MOVE was made: the number of a decision or plan, the id of a move, or the client that it moved."""

    async def look(record: Record) -> tuple[dict[str, Any], int | None, bool | None]:
        said, at = await record.find(move)
        same = (await record.replay(said["question"]["number"]))[1] if replay else None
        return said, at, same

    said, at, same = with_record(home, look)
    if as_json:
        kept = {name: said[name] for name in ("question", "plan", "why_not", "outcome")}
        output.print_json(kept | {"step": at, "same_again": same})
    else:
        _show(said, at)
        if same is not None:
            click.echo("decided again from what was kept: " + ("the same" if same else "NOT the same"))
    if same is False:
        raise SystemExit(1)


def with_record(home: str | None, work: Callable[[Record], Awaitable[Any]]) -> Any:
    """Run ``work`` on the decision log of the fleet in ``home``."""

    async def run() -> Any:
        from trimtab.control.record import Record
        from trimtab.fleet.protocol.streams import CONTROL
        from trimtab.fleet.site.credentials import FLEET_FILE, Fleet
        from trimtab.fleet.site.launch import admin_connection

        connection = await admin_connection(Fleet.load(home_of(home) / FLEET_FILE))
        try:
            return await work(Record(connection, await connection.jetstream().key_value(CONTROL)))
        finally:
            await connection.close()

    return asyncio.run(run())


def _show(said: dict[str, Any], at: int | None) -> None:
    question, plan, outcome = said["question"], said["plan"], said["outcome"] or {}
    rows = [
        ("decided", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(question["at"]))),
        ("because", "\n".join(question["reasons"])),
    ]
    if plan is None:
        rows.append(("nothing moved", said["why_not"]))
    else:
        before, then, seen = plan["before"], plan["predicted"], outcome.get("measured")
        rows += [
            ("binding", _binding(plan.get("binding"), outcome.get("binding"))),
            ("policy", plan["policy"]),
            ("allowed", _allowed(question, plan["left"])),
            ("before", _levels(before)), ("predicted", _levels(then)),
            ("measured", _levels(seen) if seen else _not_measured(outcome)),
        ]  # fmt: skip
        if outcome.get("said") and outcome.get("said_before"):
            told = f"spread {outcome['said_before']['spread']:.3f} -> {outcome['said']['spread']:.3f}"
            rows.append(("as brokers say", f"{told}, with all that passes through them"))
        if outcome.get("helped") is not None:
            rows.append(("it helped", "yes" if outcome["helped"] else "no, not half of what was predicted"))
        states = outcome.get("states", [])
        count = {state: states.count(state) for state in dict.fromkeys(states)}
        rows.append(("moves", ", ".join(f"{number:,} {state}" for state, number in count.items()) or "under way"))
        if outcome.get("stopped"):
            rows.append(("the rest", f"dropped: {outcome['stopped']}"))
        if at is not None:
            client, source, target = plan["steps"][at]
            state = states[at] if at < len(states) else "under way"
            rows.append(("this one", f"{client} from {source or 'a broker that was away'} to {target}: {state}"))
    output.print_table(f"decision {question['number']}", ["", ""], rows, left=range(2))


def _binding(said: dict[str, Any] | None, measured: float | None) -> str:
    """What there was least of, then as predicted, then as measured."""
    if said is None:
        return "that everybody has a home"
    load = said["resource"] == "load"
    figures = [said["now"], said["predicted"], *([measured] if measured is not None else [])]
    told = [f"{each:.2f} x the mean" if load else f"{each:.0%}" for each in figures]
    names = ("", " as predicted", " as measured")
    return f"{said['resource']} of {said['broker']}: " + ", ".join(map("".join, zip(told, names, strict=False)))


def _allowed(question: dict[str, Any], left: int) -> str:
    if question["leaving"]:
        return f"everybody off '{question['leaving']}', and nobody else"
    if question["only_lost"]:
        return "whoever had no home, and nobody else"
    told = [f"{question['most']:,} moves" + (f", {left:,} more were wanted" if left else "")]
    if question["frozen"]:
        told.append(f"{len(question['frozen']):,} clients had moved not long ago")
    if question["unfit"]:
        told.append(f"nobody to {', '.join(question['unfit'])}, where there was trouble")
    return "; ".join(told)


def _not_measured(outcome: dict[str, Any]) -> str:
    return f"never: {outcome['unmeasured']}" if outcome.get("unmeasured") else "not yet"


def _levels(said: dict[str, float]) -> str:
    return f"highest load {said['max_load']:,.0f} bytes/s, mean {said['mean']:,.0f}, spread {said['spread']:.3f}"
