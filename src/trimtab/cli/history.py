"""``trimtab history``: the past traffic of a fleet, by topic, broker or client, computed on Spark."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_of, home_option
from trimtab.cli.numbers import Number
from trimtab.cli.packed import packed

KEYS = {"topic": ("topic",), "broker": ("broker",), "client": ("client",), "pair": ("client", "other")}
MEASURES = {  # column -> heading, unit by which values are divided
    "in_msgs_per_s": ("in/s", 1.0), "in_bytes_per_s": ("in, kB/s", 1e3), "out_msgs_per_s": ("out/s", 1.0),
    "out_bytes_per_s": ("out, kB/s", 1e3), "subscriptions": ("subscriptions", 1.0), "topics": ("in common", 1.0),
    "processing_ms": ("CPU, ms", 1.0), "cores": ("cores", 1.0), "memory_bytes": ("memory, MB", 1e6),
    "connections": ("connections", 1.0), "p50_ms": ("p50, ms", 1.0), "p90_ms": ("p90, ms", 1.0),
    "p99_ms": ("p99, ms", 1.0),
}  # fmt: skip
COUNTS = ("subscriptions", "topics", "connections")


@dataclass(frozen=True, slots=True)
class Span:
    """A span of time, in seconds since 1970."""

    since: float | None
    until: float | None


@click.command()
@click.option("--by", type=click.Choice(list(KEYS)), default="topic", show_default=True,
              help="Subject of a row; pair: two clients and their number of common subscriptions.")  # fmt: skip
@click.option("--every", type=Number(min=1.0), metavar="S", help="Length of a time window in seconds "
              "[default: one window for the whole time].")  # fmt: skip
@click.option("--from", "folder", type=click.Path(file_okay=False), metavar="HISTORY",
              help="Folder of history [default: the fleet's].")  # fmt: skip
@click.option("--since", type=Number(), help="Seconds since 1970 [default: the beginning].")
@click.option("--until", type=Number(), help="Seconds since 1970 [default: the end].")
@click.option("--most", type=click.IntRange(min=1), default=20, show_default=True, help="Rows to show.")
@click.option("--out", type=click.Path(dir_okay=False), metavar="FILE.parquet", help="File for all rows.")
@home_option
@output.json_option
@packed("span", Span)
def history(
    by: str, every: float | None, folder: str | None, span: Span, most: int, out: str | None,
    home: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Show the past traffic of the fleet: rates, latencies and resource use of brokers, busiest first.

    With --every, a row is a time window, newest first.
    """
    from trimtab.config import load
    from trimtab.pipeline.history import check_folders, readable, windows, write_table
    from trimtab.pipeline.session import ONCE, open_session

    history_folder = Path(folder) if folder else home_of(home) / "pipeline" / "history"
    check_folders(history_folder)
    with output.progress(quiet=as_json) as bar, readable(history_folder):
        task = bar.add_task("starting Spark", total=4)

        def step(text: str) -> None:
            bar.update(task, description=text, advance=1)

        spark = open_session("trimtab history", ONCE | load().spark, quiet=True)
        try:
            table = windows(spark, history_folder, by, every, span.since, span.until, step)
            busiest = next(name for name in ("in_bytes_per_s", "topics") if name in table.columns)
            order = [name for name in ("begin", busiest) if name in table.columns]
            step("adding up")
            rows = table.orderBy(*order, *KEYS[by], ascending=[False] * len(order) + [True] * len(KEYS[by])).limit(most)
            busiest_rows = rows.toArrow().to_pylist()
            if out:
                with output.writing(Path(out)):
                    write_table(table, Path(out))
        finally:
            spark.stop()
    if as_json:
        output.print_json(busiest_rows)
        return
    measures = [name for name in MEASURES if name in table.columns]
    headings = [*(["from"] if "begin" in table.columns else []), *KEYS[by], *(MEASURES[name][0] for name in measures)]
    cells = [
        [*([_clock(row["begin"])] if "begin" in row else []), *(row[key] for key in KEYS[by]),
         *(_number(name, row[name]) for name in measures)]
        for row in busiest_rows
    ]  # fmt: skip
    left = range(len(headings) - len(measures))
    output.print_table(f"history by {by}", headings, cells, left=left, note=f"all rows: {out}" if out else None)


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _number(name: str, value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if name in COUNTS else f"{value / MEASURES[name][1]:,.2f}"
