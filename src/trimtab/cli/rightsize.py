"""``trimtab rightsize``: how many brokers the next hour needs, and why."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from trimtab.cli import output
from trimtab.cli.fleet import home_of, home_option, steps_bar, with_operator
from trimtab.cli.model_options import DEFAULT, Chosen, ModelOptions, model_options
from trimtab.cli.numbers import Number
from trimtab.cli.packed import packed
from trimtab.errors import BadInput, Unreachable

if TYPE_CHECKING:
    from trimtab.control.rightsize import Expected, History, Need
    from trimtab.control.view import View
    from trimtab.fleet.operator import Operator
    from trimtab.fleet.operator.state import FleetState
    from trimtab.observe.snapshot import Snapshot

REASON: Final = "rightsize"  # of the cordon of a broker that is not needed
HOUR_S: Final = 3600.0
SHOWN: Final = 10  # topics in the table


@dataclass(frozen=True, slots=True)
class Ahead:
    """The time that is looked at."""

    hours: float
    day_hours: float


@click.command()
@click.argument("workload", required=False, type=click.Path(file_okay=False))
@click.option("--hours", type=Number(min=0.0, min_open=True), default=1.0, show_default=True,
              help="Time ahead.")  # fmt: skip
@click.option("--day-hours", type=Number(min=0.0, min_open=True), default=24.0, show_default=True,
              help="Time after which traffic repeats.")  # fmt: skip
@click.option("--from", "history", type=click.Path(file_okay=False), metavar="HISTORY",
              help="Folder of history [default: the fleet's].")  # fmt: skip
@click.option("--apply", "apply", is_flag=True, help="Empty brokers that are not needed, or start the missing ones.")
@home_option
@output.json_option
@model_options
@packed("ahead", Ahead)
def rightsize(
    workload: str | None, ahead: Ahead, history: str | None, apply: bool, home: str | None, latency: ModelOptions,
    as_json: bool,
) -> None:  # fmt: skip
    """Say how many brokers the next hour needs, with every topic inside its latency bound by prediction.

    The traffic of a running fleet is forecast from its history. With WORKLOAD, a workload folder, the rates in the
    folder are the present traffic, and --from may name a history.

    Exit code 1: more brokers are needed than there are, or topics are too much for any broker.
    """
    if workload is not None and (apply or home is not None):
        raise BadInput("--apply and --home are about a running fleet; leave them out with a workload folder")
    basis = _basis_of(latency, offline=workload is not None)
    if workload is not None:
        view, state = _offline(workload, basis), None
    else:
        view, state = _live(home)
    folder = Path(history) if history else home_of(home) / "pipeline" / "history" if workload is None else None
    past = _history(folder, ahead, required=history is not None, quiet=as_json)
    need, rates = _needed(view, state, past, ahead, basis)
    done = _apply(home, need, quiet=as_json) if apply else []
    if as_json:
        output.print_json(_as_json(need, rates, ahead, done) | basis.as_json())
    else:
        _show(need, rates, past, ahead, done, live=state is not None)
        click.echo(f"latencies by the model '{basis.name}' of hardware '{basis.hardware.name}' ({basis.where})")
    missing = need.added if not apply else tuple(name for name in need.added if f"started {name}" not in done)
    if missing or need.hopeless:
        raise SystemExit(1)


def _basis_of(latency: ModelOptions, *, offline: bool) -> Chosen:
    """What latencies are predicted by. By default, that of ``plan`` for a workload folder, and for a running fleet that
    of its controller: an unknown machine, whose brokers have measured the CPU time of messages."""
    from trimtab.control.model_file import structure_of
    from trimtab.model.hardware import PLAIN
    from trimtab.predict.queueing import Queueing

    chosen = latency.chosen()
    if chosen.where == DEFAULT and not offline:
        return Chosen(PLAIN, Queueing(PLAIN), DEFAULT)
    return Chosen(chosen.hardware, structure_of(chosen.model or Queueing(chosen.hardware)), chosen.where)


def _offline(folder: str, basis: Chosen) -> View:
    from trimtab.control.offline import view_of
    from trimtab.model.folder import read_workload
    from trimtab.place.topic.instance import refuse_unreachable_bounds

    view = view_of(read_workload(folder))
    topics = view.snapshot.workload.topics
    if topics.processing_ms is not None and topics.latency_ms is not None:
        machines, _ = view.problem.machines_of(basis.hardware)
        bounds = np.where(topics.processing_ms > 0.0, topics.latency_ms, np.nan)
        refuse_unreachable_bounds(view.problem, machines, topics.processing_ms, bounds)
    return view


def _live(home: str | None) -> tuple[View, FleetState]:
    from trimtab.control.fleet_view import OLD_S, live_view

    async def read(operator: Operator) -> tuple[Snapshot | None, FleetState]:
        return await operator.snapshot(), await operator.state()

    snapshot, state = with_operator(home, read)
    if snapshot is None:
        raise BadInput("there is no measurement of the fleet yet: run a pipeline and a controller (trimtab up "
                       "--measure, or trimtab pipeline and trimtab controller), or name a workload folder")  # fmt: skip
    if (age := time.time() - snapshot.at) > OLD_S:
        raise BadInput(f"the newest measurement is {age:,.0f} s old: the fleet is measured while a controller and a "
                       "pipeline run (trimtab controller, trimtab pipeline)")  # fmt: skip
    view = live_view(snapshot, state)
    if not len(view.brokers):
        raise Unreachable("no broker is alive")
    return view, state


def _history(folder: Path | None, ahead: Ahead, *, required: bool, quiet: bool) -> History | None:
    """The rates of topics over two days and the time ahead; None if there is no history yet."""
    from trimtab.control.rightsize import WINDOWS, History

    if folder is None:
        return None
    from trimtab.config import load
    from trimtab.pipeline.history import check_folders, readable, topic_rates
    from trimtab.pipeline.session import ONCE, open_session

    try:
        check_folders(folder)
    except BadInput:
        if required:
            raise
        return None  # the fleet has not been measured for long enough
    window_s = ahead.hours * HOUR_S / WINDOWS
    since = time.time() - HOUR_S * (2 * ahead.day_hours + ahead.hours) if not required else 0.0
    with output.progress(quiet=quiet) as bar, readable(folder):
        task = bar.add_task("starting Spark", total=4)
        spark = open_session("trimtab rightsize", ONCE | load().spark, quiet=True)
        try:
            names, rates = topic_rates(
                spark, folder, window_s, since, lambda text: bar.update(task, description=text, advance=1)
            )
        finally:
            spark.stop()
    return History(names, rates, window_s)


def _needed(
    view: View, state: FleetState | None, past: History | None, ahead: Ahead, basis: Chosen
) -> tuple[Need, dict[str, Expected]]:  # fmt: skip
    from trimtab.config import load
    from trimtab.control.rightsize import expected, needed, with_growth

    topics = view.snapshot.workload.topics
    now = dict(zip(topics.ids, topics.rate.tolist(), strict=True))
    rates = expected(now, past, ahead.day_hours * HOUR_S)
    later = with_growth(view, {name: one.growth for name, one in rates.items()})
    cordons = {} if state is None else state.cordoned
    closed = [name for name, cordon in cordons.items() if not cordon.reason.startswith(REASON)]
    taken = () if state is None else tuple(state.brokers)
    names = tuple(name for number in range(1, len(taken) + 65) if (name := f"b{number}") not in taken)
    assert basis.model is not None
    settings = replace(load().control, model=basis.model.as_json())
    return needed(later, settings, closed=closed, names=names, apart=state is None), rates


# Changes of the fleet.


def _apply(home: str | None, need: Need, *, quiet: bool) -> list[str]:
    with steps_bar("moving", quiet=quiet) as progress:

        async def work(operator: Operator) -> list[str]:
            done: list[str] = []
            state = await operator.state()
            for name in need.added:
                try:
                    await operator.add_broker(name)
                except Unreachable:
                    return [*done, f"{name} could not be started here"]
                done.append(f"started {name}")
            for name in sorted(set(need.kept) & set(state.cordoned)):
                await operator.uncordon(name)
                done.append(f"uncordoned {name}")
            idle = [name for name in need.idle if name in state.alive and name not in state.cordoned]
            for name in idle:
                await operator.cordon(name, f"{REASON}: not needed")
            await operator.apply(_changes(need, await operator.state()), REASON, progress)
            for name in idle:
                await operator.drain(name, f"{REASON}: not needed", progress)
                done.append(f"emptied {name}")
            return done

        return with_operator(home, work)


def _changes(need: Need, state: FleetState) -> Any:
    """The moves to the placement, for keys that are still where they were and whose target is there."""
    from trimtab.fleet.operator.placement import changes

    current, waiting = state.routing().brokers, state.waiting()
    wanted = {
        key: need.view.brokers[int(row)]
        for key, row in zip(need.view.keys, need.placement, strict=True)
        if row >= 0 and key in current and key.topic not in waiting and need.view.brokers[int(row)] in state.open()
    }
    return changes(state, wanted)


# Output.


def _p90(need: Need) -> dict[str, tuple[str, float]]:
    """Broker and predicted p90 of every processed topic with the placement; of several brokers, the slowest."""
    hosting = need.hosting
    rate = hosting.rates(need.placement)
    p90, _ = hosting.predicted(rate, range(len(rate)))
    found: dict[str, tuple[str, float]] = {}
    for row, name in enumerate(hosting.names):
        here = [
            (float(value), need.view.brokers[at]) for at, value in enumerate(p90[:, row].tolist()) if value == value
        ]
        if here:
            found[name] = (max(here)[1], max(here)[0])
    return found


def _as_json(need: Need, rates: dict[str, Expected], ahead: Ahead, done: list[str]) -> dict[str, Any]:
    hosting, placed = need.hosting, _p90(need)
    bounds = dict(zip(hosting.names, hosting.bound_ms.tolist(), strict=True))
    topics = {}
    for name, one in sorted(rates.items()):
        bound, (broker, p90) = bounds.get(name, float("nan")), placed.get(name, (None, None))
        topics[name] = {
            "rate": one.now, "peak": one.peak, "margin": one.forecast.margin, "seasonal": one.forecast.seasonal,
            "latency_ms": bound if bound == bound else None, "p90_ms": p90, "broker": broker,
        }  # fmt: skip
    return {
        "hours": ahead.hours, "brokers": len(need.kept) + len(need.idle), "in_use": need.in_use,
        "needed": need.needed, "bound": need.bound, "why": why(need), "kept": list(need.kept),
        "idle": list(need.idle), "added": list(need.added), "too_much": list(need.hopeless), "topics": topics,
        "done": done,
    }  # fmt: skip


def why(need: Need) -> str:
    """Why the fleet needs so many brokers and not one less."""
    others = need.needed - need.alone
    if need.too_few:
        reason = need.too_few
    elif others == 1:
        reason = "one broker is enough"
    else:
        reason = f"no placement needs fewer: {need.binding} takes {need.bound - need.alone}"
    if not need.alone:
        return reason
    hopeless = "1 topic is too much for any broker and counts as a broker of its own" if need.alone == 1 else (
        f"{need.alone} topics are too much for any broker and count as a broker of their own each"
    )  # fmt: skip
    return f"{hopeless}; for the others, {reason}" if others else hopeless


def _show(
    need: Need, rates: dict[str, Expected], past: History | None, ahead: Ahead, done: list[str], *, live: bool
) -> None:  # fmt: skip
    rate = need.hosting.rates(need.placement)
    strain = need.hosting.strain(rate, range(len(rate)))
    rows = []
    for name in (*need.kept, *need.added):
        row = list(need.view.brokers).index(name)
        keys = int((need.placement == row).sum())
        fate = "needed" if name in need.kept else "to be started"
        rows.append((name, fate, f"{keys:,}", f"{strain[row]:.0%}" if strain[row] > 0.0 else "-"))
    if need.idle:
        more = f" and {len(need.idle) - SHOWN:,} more" if len(need.idle) > SHOWN else ""
        rows.append((f"{', '.join(need.idle[:SHOWN])}{more}", "not needed", "0", "-"))
    plural = "" if need.needed == 1 else "s"
    title = f"the next {ahead.hours:g} h need{'s' if ahead.hours == 1 else ''} {need.needed} broker{plural}"
    title += f" of {len(need.kept) + len(need.idle)}" + (f"; {need.in_use} in use now" if live else "")
    output.print_table(title, ["broker", "", "topics, clients, links" if live else "topics", "closest to a bound"],
                       rows, left=range(2), wrap=(0,))  # fmt: skip
    placed = _p90(need)
    busiest = sorted(rates, key=lambda name: -rates[name].peak)[:SHOWN]
    cells = []
    for name in busiest:
        one, (broker, p90) = rates[name], placed.get(name, ("-", float("nan")))
        cells.append(
            (name, output.number(one.now), output.number(one.peak), broker, f"{p90:,.0f}" if p90 == p90 else "-")
        )
    output.print_table(
        "", ["topic", "messages/s now", "expected peak", "broker", "predicted p90, ms"], cells,
        note=f"{len(rates) - len(cells):,} more topics" if len(rates) > len(cells) else None,
    )  # fmt: skip
    for line in (f"why: {why(need)}", _basis(rates, past), *_hints(need, done, live)):
        click.echo(line)


def _basis(rates: dict[str, Expected], past: History | None) -> str:
    if past is None or not past.rates.shape[1]:
        margin = max((one.forecast.margin for one in rates.values()), default=1.0)
        return f"no history yet: the present traffic, with a margin of {margin - 1.0:.0%}"
    seasonal = sum(one.forecast.seasonal for one in rates.values())
    return (f"forecast from {past.rates.shape[1]:,} windows of {past.window_s:,.0f} s: {seasonal:,} of {len(rates):,} "
            "topics by the day before, the others by their present growth")  # fmt: skip


def _hints(need: Need, done: list[str], live: bool) -> list[str]:
    lines = list(done)
    if not need.hosting.promised:
        lines.append("no processed topic has a latency bound, so only the limits of brokers count "
                     "(trimtab topic set NAME --latency 200ms)")  # fmt: skip
    lines += [_why_hopeless(need, name) for name in need.hopeless]
    missing = [name for name in need.added if f"started {name}" not in done]
    if missing and live:
        lines += [f"start it with: trimtab add-broker {name}" for name in missing]
        lines.append("on other machines: trimtab broker --name NAME --join FLEET.json")
    elif need.idle and live and not done:
        lines.append(f"empty {', '.join(need.idle)} with: trimtab rightsize --apply")
    return lines


def _why_hopeless(need: Need, name: str) -> str:
    from trimtab.control.rightsize import alone_at_best

    hosting, row = need.hosting, need.hosting.names.index(name)
    bound, least = hosting.bound_ms[row], hosting.idle_ms(row)
    p90, busy = alone_at_best(hosting, row)
    if least > bound:
        reason = f"even an empty broker takes {least:,.0f} ms, above its bound of {bound:,.0f} ms: raise the bound"
    elif p90 > bound:
        reason = "it is too much for any broker: split the topic"
    else:
        return (f"topic '{name}' is too much for any broker: alone there, its processor would be busy for {busy:.0%} "
                f"of the time, above {1.0 - hosting.headroom:.0%} (1 - [control] headroom): split the topic, or speed "
                "up its processor")  # fmt: skip
    return f"topic '{name}' will miss its bound: {reason}, or speed up its processor"
