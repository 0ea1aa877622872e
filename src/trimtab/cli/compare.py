"""``trimtab compare``: policies side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.lab.comparison import Comparison
from trimtab.lab.comparison import compare as run
from trimtab.place.registry import find_family
from trimtab.place.registry import policies as policies_of

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.lab.answer import Answer
    from trimtab.model.placement import Bound
    from trimtab.model.problem import Problem


@click.command()
@click.argument("workload", type=click.Path())
@click.option("--family", required=True, help="The question: link or client.")
@click.option("--policies", help="Which ones, with commas between; all of the family if left out.")
@output.current_option
@output.objective_option
@output.budget_option
@output.seed_option
@output.time_limit_option(10.0)
@click.option("--plot", callback=output.plot_path, metavar="FILE", help="Draw it, as .png, .svg or .pdf.")
@output.json_option
def compare(
    workload: str,
    family: str,
    policies: str | None,
    current: str | None,
    objective: str | None,
    budget: float | None,
    seed: int,
    time_limit: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run the policies of a family on WORKLOAD and hold them against the tightest bound any of them proved."""
    unit = find_family(family).unit
    names = [output.named_policy(family, p.strip()) for p in policies.split(",")] if policies else policies_of(family)
    knobs = output.knobs(family, objective, budget, current)
    problem = output.problem_of(workload, unit, current)
    comparison = run_with_progress(problem, names, seed, time_limit, quiet=as_json, **knobs)
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
    problem: Problem, names: list[str], seed: int, time_limit: float, *, quiet: bool, **knobs: Any
) -> Comparison:
    with output.progress(quiet=quiet) as bar:
        step = bar.add_task("starting", total=len(names) + 1)
        comparison = run(
            problem, names, seed=seed, time_limit_s=time_limit,
            started=lambda name: bar.update(step, advance=1, description=name), **knobs,
        )  # fmt: skip
        bar.update(step, advance=1)
    return comparison


def draw(comparison: Comparison, title: str, path: Path) -> None:
    from trimtab.lab.plots import draw_comparison, save

    with output.writing(path):
        save(draw_comparison(comparison, title), path)


def print_comparison(comparison: Comparison, title: str) -> None:
    best = comparison.bound
    columns, row = SHOWN[best.figure]
    side = "upper" if best.more_is_better else "lower"
    note = f"{side} bound {output.number(best.value)} ({best.kind})"
    output.print_table(title, columns, [row(answer, best) for answer in comparison.answers], note=note)
    for name, why in comparison.refused.items():
        click.echo(f"{name} left out: {why}")


LINK_COLUMNS = [
    "policy", "received", "data", "below bound", "unplaced", "brokers", "max load", "load cov", "violations", "took",
]  # fmt: skip
DELAY_COLUMNS = [
    "policy", "delay", "above bound", "to homes", "between", "least kept", "max storage", "max load", "moves", "took",
]  # fmt: skip
CLIENT_COLUMNS = [
    "policy", "max load", "above bound", "load cov", "total load", "moves", "least moves", "violations", "took",
]  # fmt: skip


def link_row(answer: Answer, best: Bound) -> tuple[str, ...]:
    found = answer.judgement
    return (
        answer.policy,
        output.percent(found.received_share),
        output.number(found.received),
        _gap(answer, best),
        f"{found.unplaced:,}",
        f"{found.brokers_used:,}",
        output.number(found.load.max),
        f"{found.load.cov:.4f}",
        f"{len(found.violations):,}",
        output.seconds(answer.seconds),
    )


def client_row(answer: Answer, best: Bound) -> tuple[str, ...]:
    found = answer.judgement
    return (
        answer.policy,
        output.number(found.load.level),
        _gap(answer, best),
        f"{found.load.cov:.4f}",
        output.number(found.load.total),
        f"{found.moves.units:,}" if found.moves else "-",
        f"{found.moves.least:,}" if found.moves else "-",
        f"{len(found.violations):,}",
        output.seconds(answer.seconds),
    )


def delay_row(answer: Answer, best: Bound) -> tuple[str, ...]:
    found, delay = answer.judgement, answer.judgement.delay
    assert delay is not None
    return (
        answer.policy,
        f"{delay.mean_ms:.3f} ms",
        _gap(answer, best),
        f"{delay.near_ms:.3f} ms",
        f"{delay.far_ms:.3f} ms",
        output.percent(float(delay.kept.min()), 1),
        output.number(float(delay.storage.max())),
        output.number(found.load.level),
        f"{found.moves.units:,}" if found.moves else "-",
        output.seconds(answer.seconds),
    )


def _gap(answer: Answer, best: Bound) -> str:
    return "optimal" if best.proves(answer.achieved) else output.percent(answer.gap(best), 3)


SHOWN = {
    "received": (LINK_COLUMNS, link_row),
    "max_load": (CLIENT_COLUMNS, client_row),
    "delay": (DELAY_COLUMNS, delay_row),
}
