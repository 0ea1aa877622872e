"""``trimtab compare``: policies side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.policy_options import PolicyOptions, policy_options, setting
from trimtab.lab.comparison import Comparison
from trimtab.lab.comparison import compare as run
from trimtab.place.registry import find_family
from trimtab.place.registry import policies as policies_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trimtab.lab.answer import Answer
    from trimtab.model.placement import Bound
    from trimtab.model.problem import Problem


@click.command()
@click.argument("workload", type=click.Path())
@click.option("--family", required=True, help="The question: link or client.")
@click.option("--policies", help="Which ones, with commas between; all of the family if left out.")
@policy_options(10.0)
@click.option("--plot", callback=output.plot_path, metavar="FILE", help="Draw it, as .png, .svg or .pdf.")
@output.json_option
def compare(
    workload: str,
    family: str,
    policies: str | None,
    options: PolicyOptions,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run the policies of a family on WORKLOAD and hold them against the tightest bound any of them proved."""
    unit = find_family(family).unit
    names = [output.named_policy(family, p.strip()) for p in policies.split(",")] if policies else policies_of(family)
    knobs = options.knobs(family, names)
    problem = output.problem_of(workload, unit, options.current)
    comparison = run_with_progress(problem, knobs, options.time_limit_s, quiet=as_json)
    if plot is not None:
        draw(comparison, workload, plot)
    if as_json:
        answer = {"workload": workload, "family": family, "plot": str(plot) if plot else None}
        output.print_json(answer | comparison.as_json())
    else:
        print_comparison(comparison, f"{comparison.question}: {workload}")
        if plot is not None:
            click.echo(f"plot: {plot}")


def run_with_progress(
    problem: Problem, knobs: Mapping[str, Mapping[str, Any]], time_limit_s: float, *, quiet: bool
) -> Comparison:
    with output.progress(quiet=quiet) as bar:
        step = bar.add_task("starting", total=len(knobs) + 1)
        comparison = run(
            problem, knobs, time_limit_s=time_limit_s,
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
    show = {"received": _link_cells, "max_load": _load_cells, "delay": _delay_cells}[best.figure]
    rows = [
        {"policy": answer.policy, **show(answer, best), "took": output.seconds(answer.seconds)}
        for answer in comparison.answers
    ]
    side = "upper" if best.more_is_better else "lower"
    note = f"{side} bound {output.number(best.value)} ({best.kind})"
    output.print_table(title, list(rows[0]), [list(row.values()) for row in rows], note=note)
    for answer in comparison.answers:
        if answer.knobs:
            click.echo(f"{answer.policy} with {setting(answer.knobs)}")
    for name, why in comparison.refused.items():
        click.echo(f"{name} left out: {why}")


def _link_cells(answer: Answer, best: Bound) -> dict[str, str]:
    found = answer.judgement
    return {
        "received": output.percent(found.received_share),
        "data": output.number(found.received),
        "below bound": _gap(answer, best),
        "unplaced": f"{found.unplaced:,}",
        "brokers": f"{found.brokers_used:,}",
        "max load": output.number(found.load.max),
        "load cov": f"{found.load.cov:.4f}",
        "violations": f"{len(found.violations):,}",
    }


def _load_cells(answer: Answer, best: Bound) -> dict[str, str]:
    found = answer.judgement
    return {
        "max load": output.number(found.load.level),
        "above bound": _gap(answer, best),
        "load cov": f"{found.load.cov:.4f}",
        "total load": output.number(found.load.total),
        "moves": f"{found.moves.units:,}" if found.moves else "-",
        "least moves": f"{found.moves.least:,}" if found.moves else "-",
        "violations": f"{len(found.violations):,}",
    }


def _delay_cells(answer: Answer, best: Bound) -> dict[str, str]:
    found, delay = answer.judgement, answer.judgement.delay
    assert delay is not None
    return {
        "delay": f"{delay.mean_ms:.3f} ms",
        "above bound": _gap(answer, best),
        "to homes": f"{delay.near_ms:.3f} ms",
        "between": f"{delay.far_ms:.3f} ms",
        "least kept": output.percent(float(delay.kept.min()), 1),
        "max storage": output.number(float(delay.storage.max())),
        "max load": output.number(found.load.level),
        "moves": f"{found.moves.units:,}" if found.moves else "-",
    }


def _gap(answer: Answer, best: Bound) -> str:
    return "optimal" if best.proves(answer.achieved) else output.percent(answer.gap(best), 3)
