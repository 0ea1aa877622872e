"""``trimtab workload``: a fleet as a workload folder, from its history on Spark or as it is now."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.errors import BadInput

if TYPE_CHECKING:
    from trimtab.fleet.operator import Operator
    from trimtab.fleet.operator.state import FleetState
    from trimtab.observe.snapshot import Snapshot


@click.command()
@click.option("--from", "history", type=click.Path(file_okay=False), metavar="HISTORY",
              help="Folder with topics, links and brokers as Parquet, as the pipeline keeps it.")  # fmt: skip
@click.option("--live", is_flag=True, help="The running fleet by its newest measurement, with its current placement.")
@click.option("--out", required=True, type=click.Path(file_okay=False), metavar="DIR", help="The workload folder.")
@click.option("--since", type=float, help="With --from: seconds since 1970 [default: the beginning].")
@click.option("--until", type=float, help="With --from: seconds since 1970 [default: the end].")
@home_option
@output.json_option
def workload(
    history: str | None, live: bool, out: str, since: float | None, until: float | None, home: str | None, as_json: bool
) -> None:
    """Rates of all topics, and everybody who has to do with them, as a workload to plan and compare on.

    --from HISTORY: means over the history of telemetry. --live: the fleet of --home now; the folder then has its
    placement, too, as placement.csv.
    """
    if live == (history is not None):
        raise BadInput("trimtab workload needs either --from HISTORY or --live")
    if live and (since is not None or until is not None):
        raise BadInput("--since and --until are about a history; --live writes the newest measurement")
    if history is not None:
        _from_history(Path(history), Path(out), since, until, as_json)
    else:
        _live(home, Path(out), as_json)


def _live(home: str | None, out: Path, as_json: bool) -> None:
    from trimtab.control.fleet_view import live_workload
    from trimtab.model.folder import write_workload
    from trimtab.model.key import counted
    from trimtab.model.placement_file import write_keys

    async def look(operator: Operator) -> tuple[Snapshot | None, FleetState]:
        return await operator.snapshot(), await operator.state()

    snapshot, state = with_operator(home, look)
    if snapshot is None:
        raise BadInput("there is no measurement of the fleet yet: is the pipeline running? (trimtab pipeline)")
    made, keys = live_workload(snapshot, state)
    if not len(made.links) or not len(made.brokers):
        missing = "no broker is alive" if len(made.links) else "nobody publishes or subscribes to anything"
        raise BadInput(f"there is no workload to write: {missing}")
    placement = out / "placement.csv"
    with output.writing(placement):
        write_workload(made, out)
        write_keys(keys, placement)
        placement.with_suffix(".parquet").unlink(missing_ok=True)  # one folder, one placement
    rows = {
        "topics": len(made.topics), "clients": len(made.clients), "brokers": len(made.brokers),
        "links": len(made.links),
    }  # fmt: skip
    age = time.time() - snapshot.at
    if as_json:
        output.print_json({"rows": rows, "keys": len(keys), "age_s": age, "placement": str(placement)})
        return
    note = (
        f"measured {age:.0f} s ago; placement of {counted(keys)}: {placement}\n"
        f"next: trimtab plan {out} --family client --current {placement}, trimtab apply {out} PLACEMENT"
    )
    _print_rows(out, rows, note)


def _print_rows(out: Path, rows: dict[str, int], note: str) -> None:
    cells = [(name, f"{count:,}") for name, count in rows.items()]
    output.print_table(f"workload in {out}", ["table", "rows"], cells, note=note)


def _from_history(history: Path, out: Path, since: float | None, until: float | None, as_json: bool) -> None:
    from trimtab.config import load
    from trimtab.pipeline.history import check_folders, write_workload
    from trimtab.pipeline.session import ONCE, open_session

    check_folders(history)
    with output.progress(quiet=as_json) as bar:
        task = bar.add_task("starting Spark", total=6)

        def step(what: str) -> None:
            bar.update(task, description=what, advance=1)

        spark = open_session("trimtab workload", ONCE | load().spark, quiet=True)
        try:
            with output.writing(out):
                written: dict[str, Any] = write_workload(spark, history, out, since, until, step)
        finally:
            spark.stop()
    if as_json:
        output.print_json(written)
        return
    gap = written["span_s"] - written["measured_s"]
    away = f" ({gap:,.0f} s of it without a measurement)" if gap > 1.0 else ""
    took = f"{written['events']:,} rows of history over {written['span_s']:,.0f} s{away}, in {written['seconds']:.1f} s"
    _print_rows(out, written["rows"], f"{took}; next: trimtab plan {out} --family client")
