"""``trimtab judge``: computes the figures of any placement."""

from __future__ import annotations

import click

from trimtab.cli import output
from trimtab.errors import BadInput
from trimtab.model.folder import read_workload
from trimtab.model.key import RoutingTable
from trimtab.model.placement_file import has_several_units, read_keys, read_placement
from trimtab.place.judge import judge as referee
from trimtab.place.judge import judge_routing


@click.command()
@click.argument("workload", type=click.Path())
@click.argument("placement", type=click.Path())
@output.current_option
@output.json_option
def judge(workload: str, placement: str, current: str | None, as_json: bool) -> None:
    """Compute the figures of PLACEMENT, a placement file, on WORKLOAD, a folder.

    Exit code 1 if the placement exceeds a broker's limit.
    """
    with output.progress(quiet=as_json) as bar:
        step = bar.add_task("reading", total=2)
        load, mixed = read_workload(workload), has_several_units(placement)
        if mixed and current is not None:
            raise BadInput(f"{placement} has several units; --current compares placements of one unit")
        if mixed:
            unit, judgement = "mixed", judge_routing(load, RoutingTable.of_keys(read_keys(load, placement)))
        else:
            problem, placement_read = read_placement(load, placement)
            if current is not None:
                problem = output.problem_of(workload, problem.unit, current)
            bar.update(step, advance=1, description="judging")
            unit, judgement = placement_read.unit, referee(problem, placement_read)
        bar.update(step, advance=1)
    if as_json:
        output.print_json({"unit": unit, "judgement": judgement.as_json()})
    else:
        output.print_table(f"{placement} on {workload}", ["figure", "value"], output.judgement_rows(judgement))
        output.print_violations(judgement)
    if not judgement.feasible:
        raise SystemExit(1)
