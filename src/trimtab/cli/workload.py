"""``trimtab workload``: writes a fleet as a workload folder, from its history on Spark or its current state."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.cli.numbers import Number
from trimtab.errors import BadInput

if TYPE_CHECKING:
    from trimtab.fleet.operator import Operator
    from trimtab.fleet.operator.state import FleetState
    from trimtab.observe.snapshot import Snapshot


@click.command()
@click.option("--from", "history", type=click.Path(file_okay=False), metavar="HISTORY",
              help="The pipeline's folder of history, with topics, links and brokers as Parquet.")  # fmt: skip
@click.option("--live", is_flag=True, help="Write the newest measurement of the fleet, and its current placement.")
@click.option("--out", required=True, type=click.Path(file_okay=False), metavar="DIR", help="The workload folder.")
@click.option("--since", type=Number(), help="With --from: seconds since 1970 [default: the beginning].")
@click.option("--until", type=Number(), help="With --from: seconds since 1970 [default: the end].")
@home_option
@output.json_option
def workload(
    history: str | None, live: bool, out: str, since: float | None, until: float | None, home: str | None, as_json: bool
) -> None:
    """Write a workload folder for trimtab plan and compare: topics with their rates, clients, brokers and links.

    With --from HISTORY, rates are means over the history of telemetry. With --live, the workload is the fleet of --home
    now, and the folder also gets its placement as placement.csv.
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

    async def read(operator: Operator) -> tuple[Snapshot | None, FleetState]:
        return await operator.snapshot(), await operator.state()

    snapshot, state = with_operator(home, read)
    if snapshot is None:
        raise BadInput("there is no measurement of the fleet yet: is the pipeline running? (trimtab pipeline)")
    current, keys = live_workload(snapshot, state)
    if not len(current.links) or not len(current.brokers):
        missing = "no broker is alive" if len(current.links) else "there are no publishers and no subscribers"
        raise BadInput(f"there is no workload to write: {missing}")
    placement = out / "placement.csv"
    with output.writing(placement):
        write_workload(current, out)
        write_keys(keys, placement)
        placement.with_suffix(".parquet").unlink(missing_ok=True)  # a folder has one placement file
    rows = {
        "topics": len(current.topics), "clients": len(current.clients), "brokers": len(current.brokers),
        "links": len(current.links),
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

        def step(text: str) -> None:
            bar.update(task, description=text, advance=1)

        spark = open_session("trimtab workload", ONCE | load().spark, quiet=True)
        try:
            with output.writing(out):
                summary: dict[str, Any] = write_workload(spark, history, out, since, until, step)
        finally:
            spark.stop()
    if as_json:
        output.print_json(summary)
        return
    gap = summary["span_s"] - summary["measured_s"]
    unmeasured = f" ({gap:,.0f} s of it without a measurement)" if gap > 1.0 else ""
    span = f"{summary['span_s']:,.0f} s{unmeasured}"
    note = f"{summary['events']:,} rows of history over {span}, in {summary['seconds']:.1f} s"
    _print_rows(out, summary["rows"], f"{note}; next: trimtab plan {out} --family client")
