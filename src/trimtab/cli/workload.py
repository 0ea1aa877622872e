"""``trimtab workload``: history of telemetry into a workload folder, on Spark."""

from __future__ import annotations

from pathlib import Path

import click

from trimtab.cli import output


@click.command()
@click.option("--from", "history", required=True, type=click.Path(file_okay=False), metavar="HISTORY",
              help="Folder with topics, links and brokers as Parquet, as the pipeline keeps it.")  # fmt: skip
@click.option("--out", required=True, type=click.Path(file_okay=False), metavar="DIR", help="The workload folder.")
@click.option("--since", type=float, help="Seconds since 1970 [default: the beginning].")
@click.option("--until", type=float, help="Seconds since 1970 [default: the end].")
@output.json_option
def workload(history: str, out: str, since: float | None, until: float | None, as_json: bool) -> None:
    """Mean rates of all topics, and everybody who had to do with them, as a workload to plan and compare on."""
    from trimtab.config import load
    from trimtab.pipeline.history import check_folders, write_workload
    from trimtab.pipeline.session import ONCE, open_session

    check_folders(Path(history))
    with output.progress(quiet=as_json) as bar:
        task = bar.add_task("starting Spark", total=6)

        def step(what: str) -> None:
            bar.update(task, description=what, advance=1)

        spark = open_session("trimtab workload", ONCE | load().spark, quiet=True)
        try:
            with output.writing(Path(out)):
                said = write_workload(spark, Path(history), Path(out), since, until, step)
        finally:
            spark.stop()
    if as_json:
        output.print_json(said)
        return
    rows = [(name, f"{count:,}") for name, count in said["rows"].items()]
    gap = said["span_s"] - said["measured_s"]
    away = f" ({gap:,.0f} s of it without a measurement)" if gap > 1.0 else ""
    took = f"{said['events']:,} rows of history over {said['span_s']:,.0f} s{away}, in {said['seconds']:.1f} s"
    note = f"{took}; next: trimtab plan {out} --family client"
    output.print_table(f"workload in {out}", ["table", "rows"], rows, note=note)
