"""``trimtab demo``: the main job on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from trimtab.cli import output
from trimtab.cli.compare import draw, print_comparison, run_with_progress
from trimtab.lab.worlds.maxdata import MaxData
from trimtab.model.folder import write_workload
from trimtab.model.problem import Problem
from trimtab.place.registry import policies


@click.command()
@click.option("--out", default="out/demo", show_default=True, type=click.Path(file_okay=False))
@output.seed_option
@output.time_limit_option(10.0)
@output.json_option
def demo(out: str, seed: int, time_limit: float, as_json: bool) -> None:
    """Make the instance of Lambert & Sakellariou and compare every link policy on it.

    100 publishers, 100 subscribers with 5 links each, 20 machines of bandwidth 200: the links do not all fit,
    and which ones to carry where decides how much data arrives.
    """
    home = Path(out)
    world = MaxData(rates="low", machines=20, bandwidth=200.0)
    workload = world.make(seed)
    write_workload(workload, home / "workload")
    problem = Problem(workload, "link")
    comparison = run_with_progress(problem, policies("link"), seed, time_limit, quiet=as_json)
    plot = home / "compare.png"
    title = f"{len(problem.topic)} links of {world.publishers} publishers on {world.machines} machines"
    draw(comparison, title, plot)
    if as_json:
        output.print_json({"workload": str(home / "workload"), "plot": str(plot)} | comparison.as_json())
    else:
        print_comparison(comparison, f"{title}: {comparison.question}")
        click.echo(f"workload: {home / 'workload'}\nplot:     {plot}")
        click.echo(f"next:     trimtab plan {home / 'workload'} --family link --policy trim --out {home}")
