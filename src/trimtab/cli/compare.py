"""``trimtab compare``: runs several policies on a workload and compares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import numpy as np

from trimtab.cli import output
from trimtab.cli.model_options import ModelOptions, model_options
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
@click.option("--family", required=True, help="The question: link, client or topic.")
@click.option("--policies", help="Names separated by commas [default: all of the family].")
@policy_options(10.0)
@click.option("--plot", callback=output.plot_path, metavar="FILE", help="Plot of the comparison: .png, .svg or .pdf.")
@output.json_option
@model_options
def compare(
    workload: str,
    family: str,
    policies: str | None,
    options: PolicyOptions,
    latency: ModelOptions,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run the policies of a family on WORKLOAD and compare them with the tightest bound that any of them proved."""
    unit = find_family(family).unit
    names = [output.named_policy(family, p.strip()) for p in policies.split(",")] if policies else policies_of(family)
    knobs = options.knobs(family, names)
    chosen = latency.chosen_for(knobs)
    problem = output.problem_of(workload, unit, options.current, chosen.hardware, options.leg)
    knobs = {name: {**own, "model": chosen.model} for name, own in knobs.items()}
    comparison = run_with_progress(problem, knobs, options.time_limit_s, quiet=as_json)
    simulated = any(answer.judgement.latency is not None for answer in comparison.answers)
    if plot is not None:
        draw(comparison, workload, plot)
    if as_json:
        fields = {"workload": workload, "family": family, "plot": str(plot) if plot else None}
        output.print_json(fields | comparison.as_json() | (chosen.as_json() if simulated else {}))
    else:
        print_comparison(comparison, f"{comparison.question}: {workload}")
        for name, value in chosen.rows() if simulated else []:
            click.echo(f"{name}: {value}")
        if simulated and chosen.hint:
            click.echo(chosen.hint)
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
    cells = {
        "received": _link_cells, "max_load": _load_cells, "delay": _delay_cells, "brokers_used": _topic_cells,
        "violating_pairs": _near_cells,
    }  # fmt: skip
    show = cells[best.figure]
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
    for name, reason in comparison.refused.items():
        click.echo(f"{name} left out: {reason}")


def _link_cells(answer: Answer, best: Bound) -> dict[str, str]:
    judgement = answer.judgement
    return {
        "received": output.percent(judgement.received_share),
        "data": output.number(judgement.received),
        "below bound": _gap(answer, best),
        "unplaced": f"{judgement.unplaced:,}",
        "brokers": f"{judgement.brokers_used:,}",
        "max load": output.number(judgement.load.max),
        "load cov": f"{judgement.load.cov:.4f}",
        "violations": f"{len(judgement.violations):,}",
    }


def _load_cells(answer: Answer, best: Bound) -> dict[str, str]:
    judgement = answer.judgement
    return {
        "max load": output.number(judgement.load.level),
        "above bound": _gap(answer, best),
        "load cov": f"{judgement.load.cov:.4f}",
        "total load": output.number(judgement.load.total),
        "moves": f"{judgement.moves.units:,}" if judgement.moves else "-",
        "least moves": f"{judgement.moves.least:,}" if judgement.moves else "-",
        "violations": f"{len(judgement.violations):,}",
    }


def _delay_cells(answer: Answer, best: Bound) -> dict[str, str]:
    judgement, delay = answer.judgement, answer.judgement.delay
    assert delay is not None
    return {
        "delay": f"{delay.mean_ms:.3f} ms",
        "above bound": _gap(answer, best),
        "to homes": f"{delay.near_ms:.3f} ms",
        "between": f"{delay.far_ms:.3f} ms",
        "least kept": output.percent(float(delay.kept.min()), 1),
        "max storage": output.number(float(delay.storage.max())),
        "max load": output.number(judgement.load.level),
        "moves": f"{judgement.moves.units:,}" if judgement.moves else "-",
    }


def _topic_cells(answer: Answer, best: Bound) -> dict[str, str]:
    judgement, latency = answer.judgement, answer.judgement.latency
    assert latency is not None
    p90 = latency.p90_ms[~np.isnan(latency.p90_ms)]
    return {
        "brokers": f"{judgement.brokers_used:,}",
        "above bound": _gap(answer, best),
        "unplaced": f"{judgement.unplaced:,}",
        "topics out of bound": f"{latency.topics_out_of_bound:,}",
        "messages": output.percent(latency.messages_out_of_bound),
        "p90, median": f"{np.median(p90):,.0f} ms" if len(p90) else "-",
        "slowest": f"{p90.max():,.0f} ms" if len(p90) else "-",
        "CPU": output.percent(float(latency.cpu[latency.cpu > 0.0].mean()), 1) if latency.cpu.any() else "-",
    }


def _near_cells(answer: Answer, best: Bound) -> dict[str, str]:
    judgement, network = answer.judgement, answer.judgement.network
    assert network is not None
    broken, latency = judgement.promises_broken, judgement.latency
    processing = {} if latency is None else {
        "out of bound by processing": f"{latency.topics_out_of_bound:,}", "by both": f"{broken:,}",
    }  # fmt: skip
    return {
        "pairs out of bound": f"{network.violating_pairs:,}",
        "of all pairs": output.percent(network.violation_ratio),
        "above bound": _gap(answer, best),
        "topics out of bound": f"{network.topics_out_of_bound:,}",
        **processing,
        "worst pair": output.milliseconds(network.worst),
        "mean worst pair": output.milliseconds(network.mean_ms),
        "brokers": f"{judgement.brokers_used:,}",
        "unplaced": f"{judgement.unplaced:,}",
        "moves": f"{judgement.moves.units:,}" if judgement.moves else "-",
    }


def _gap(answer: Answer, best: Bound) -> str:
    return output.distance(answer.judgement.figure(best.figure), best)
