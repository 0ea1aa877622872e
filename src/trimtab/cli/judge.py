"""``trimtab judge``: what any placement does, ours or not."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.model.folder import read_workload
from trimtab.model.placement_file import read_placement
from trimtab.place.judge import judge as referee


@click.command()
@click.argument("workload", type=click.Path())
@click.argument("placement", type=click.Path())
@output.current_option
@output.json_option
def judge(workload: str, placement: str, current: str | None, as_json: bool) -> None:
    """Compute the figures of PLACEMENT, a placement file, on WORKLOAD, a folder.

    Exit code 1 if it breaks a broker's limit.
    """
    with output.progress(quiet=as_json) as bar:
        step = bar.add_task("reading", total=2)
        problem, placed = read_placement(read_workload(workload), placement)
        if current is not None:
            problem = output.problem_of(workload, problem.unit, current)
        bar.update(step, advance=1, description="judging")
        judgement = referee(problem, placed)
        bar.update(step, advance=1)
    if as_json:
        output.print_json({"unit": placed.unit, "judgement": judgement.as_json()})
    else:
        output.print_table(f"{placement} on {workload}", ["figure", "value"], output.judgement_rows(judgement))
        output.print_violations(judgement)
    if not judgement.feasible:
        raise SystemExit(1)
