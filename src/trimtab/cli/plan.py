"""``trimtab plan``: computes a placement of a workload."""

from __future__ import annotations

from pathlib import Path

import click

from trimtab.cli import output
from trimtab.cli.policy_options import PolicyOptions, policy_options, setting
from trimtab.lab.answer import ask
from trimtab.model.placement_file import write_placement
from trimtab.place.registry import find_family


@click.command()
@click.argument("workload", type=click.Path())
@click.option("--family", help="The question: link or client. Not needed with --policy FAMILY/NAME.")
@click.option("--policy", default="trim", show_default=True, help="Policy that places the units.")
@policy_options(60.0)
@click.option("--out", type=click.Path(file_okay=False), help="Folder for the placement file.")
@click.option("--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True)
@output.json_option
def plan(
    workload: str,
    family: str | None,
    policy: str,
    options: PolicyOptions,
    out: str | None,
    form: str,
    as_json: bool,
) -> None:
    """Compute which broker serves which unit of WORKLOAD, a folder of topics, clients, brokers and links."""
    name = output.named_policy(family, policy)
    knobs = options.knobs(name.split("/")[0], [name])[name]
    with output.progress(quiet=as_json) as bar:
        step = bar.add_task("reading", total=3)
        problem = output.problem_of(workload, find_family(name.split("/")[0]).unit, options.current)
        bar.update(step, advance=1, description=f"planning with {name}")
        answer = ask(name, problem, time_limit_s=options.time_limit_s, **knobs)
        bar.update(step, advance=1, description="writing")
        path = None
        if out is not None:
            path = Path(out) / f"placement.{form}"
            with output.writing(path):
                write_placement(problem, answer.placement, path)
            other = path.with_suffix(".parquet" if form == "csv" else ".csv")
            other.unlink(missing_ok=True)  # a folder has one placement file
        bar.update(step, advance=1)
    if as_json:
        output.print_json(answer.as_json() | {"placement": str(path) if path else None})
    else:
        proof = "proven optimal" if answer.proven_optimal else f"within {output.percent(answer.gap(), 3)} of the bound"
        bound = f"{output.number(answer.bound.value)} ({answer.bound.kind})"
        side = "upper" if answer.bound.more_is_better else "lower"
        rows = [*output.judgement_rows(answer.judgement), (f"{side} bound", bound), ("", proof)]
        rows.append(("took", output.seconds(answer.seconds)))
        if answer.knobs:
            rows.append(("knobs set", setting(answer.knobs)))
        output.print_table(f"{name} on {workload}", ["figure", "value"], rows)
        output.print_violations(answer.judgement)
        click.echo(f"placement: {path}" if path else "nothing written; --out DIR keeps the placement")
    if not answer.judgement.feasible:
        raise SystemExit(1)
