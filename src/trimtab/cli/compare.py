"""``trimtab compare``: policies side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.lab.comparison import Comparison
from trimtab.lab.comparison import compare as run
from trimtab.model.folder import read_workload
from trimtab.model.problem import Problem
from trimtab.place.registry import find_family
from trimtab.place.registry import policies as policies_of

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("workload", type=click.Path())
@click.option("--family", required=True, help="The question: link.")
@click.option("--policies", help="Which ones, with commas between; all of the family if left out.")
@output.seed_option
@output.time_limit_option(10.0)
@click.option("--plot", callback=output.plot_path, metavar="FILE", help="Draw it, as .png, .svg or .pdf.")
@output.json_option
def compare(
    workload: str,
    family: str,
    policies: str | None,
    seed: int,
    time_limit: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run the policies of a family on WORKLOAD and hold them against the tightest bound any of them proved."""
    unit = find_family(family).unit
    names = [output.named_policy(family, p.strip()) for p in policies.split(",")] if policies else policies_of(family)
    comparison = run_with_progress(Problem(read_workload(workload), unit), names, seed, time_limit, quiet=as_json)
    if plot is not None:
        draw(comparison, workload, plot)
    if as_json:
        answer = {"workload": workload, "family": family, "plot": str(plot) if plot else None}
        output.print_json(answer | comparison.as_json())
    else:
        print_comparison(comparison, f"{find_family(family).question}: {workload}")
        if plot is not None:
            click.echo(f"plot: {plot}")


def run_with_progress(problem: Problem, names: list[str], seed: int, time_limit: float, *, quiet: bool) -> Comparison:
    with output.progress(quiet=quiet) as bar:
        step = bar.add_task("starting", total=len(names) + 1)
        comparison = run(
            problem, names, seed=seed, time_limit_s=time_limit,
            started=lambda name: bar.update(step, advance=1, description=name),
        )  # fmt: skip
        bar.update(step, advance=1)
    return comparison


def draw(comparison: Comparison, title: str, path: Path) -> None:
    from trimtab.lab.plots import draw_comparison, save

    with output.writing(path):
        save(draw_comparison(comparison, title), path)


def print_comparison(comparison: Comparison, title: str) -> None:
    best = comparison.bound
    rows = []
    for a in comparison.answers:
        j = a.judgement
        gap = "optimal" if best.proves(j.received) else output.percent(a.gap(best), 3)
        rows.append(
            (
                a.policy,
                output.percent(j.received_share),
                output.number(j.received),
                gap,
                f"{j.unplaced:,}",
                f"{j.brokers_used:,}",
                output.number(j.load.max),
                f"{j.load.cov:.4f}",
                f"{len(j.violations):,}",
                output.seconds(a.seconds),
            )
        )
    columns = [
        "policy",
        "received",
        "data",
        "below bound",
        "unplaced",
        "brokers",
        "max load",
        "load cov",
        "violations",
        "took",
    ]
    output.print_table(title, columns, rows, note=f"upper bound {output.number(best.value)} ({best.kind})")
    for name, why in comparison.refused.items():
        click.echo(f"{name} left out: {why}")
