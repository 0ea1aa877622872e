"""``trimtab pipeline``: runs the pipeline of an application."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
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

    A pipeline that was stopped or killed resumes where it ended. It also measures the fleet for a running controller;
    without APP, it does only that. Spark's settings are under [spark] of trimtab.toml.
    """
    from trimtab.fleet.site.processes import PipelineProcess
    from trimtab.pipeline.process import execution, ready, run

    with output.progress(quiet=as_json) as bar:
        task = bar.add_task("starting", total=5)

        def step(text: str) -> None:
            bar.update(task, description=text, advance=1)

        def show_ready(driver: Driver) -> None:
            bar.stop()
            if not as_json:
                click.echo(f"{ready(driver)}; stop with Ctrl-C")

        def show_execution(done: Done) -> None:
            click.echo(json.dumps(asdict(done)) if as_json else execution(done))
            sys.stdout.flush()

        run(PipelineProcess(str(home_of(home)), app), step=step, on_execution=show_execution, on_ready=show_ready)
