"""``trimtab pipeline``: the data cluster of an application."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_of, home_option

if TYPE_CHECKING:
    from trimtab.pipeline.driver import Done, Driver


@click.command()
@click.argument("app", type=click.Path(dir_okay=False), required=False)
@home_option
@click.option("--json", "as_json", is_flag=True, help="A line of JSON for every execution.")
def pipeline(app: str | None, home: str | None, as_json: bool) -> None:
    """Run the feeds, datasets and channels of the manifest APP on the fleet of --home, until Ctrl-C.

    It goes on where it was stopped, or killed. Beside that it measures the fleet for a controller, if one runs; without
    APP, that is all. Spark's settings are under [spark] of trimtab.toml.
    """
    from trimtab.config import load
    from trimtab.pipeline.run import run

    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stop.append(number))
    with output.progress(quiet=as_json) as bar:
        task = bar.add_task("starting", total=5)

        def step(what: str) -> None:
            bar.update(task, description=what, advance=1)

        def up(driver: Driver) -> None:
            bar.stop()
            if not as_json:
                names = ", ".join(driver.plans) or "none"
                click.echo(f"the pipeline of '{driver.app.name}' is up; channels: {names}; stop with Ctrl-C")

        run(
            Path(app) if app else None, home_of(home), load().spark, stopping=lambda: bool(stop), step=step,
            told=_told_json if as_json else _told, up=up,
        )  # fmt: skip


def _told_json(done: Done) -> None:
    click.echo(json.dumps(asdict(done)))
    sys.stdout.flush()


def _told(done: Done) -> None:
    index = ", by index" if done.indexed else ""
    left_out = f"; {done.left_out:,} rows left out: {done.reason}" if done.left_out else ""
    click.echo(
        f"{done.channel} #{done.execution}: {done.publications:,} publications x {done.subscriptions:,} subscriptions "
        f"-> {done.results:,} results, {done.rows:,} rows, {done.took_s:.2f} s{index}{left_out}"
    )
