"""``trimtab judge``: computes the figures of any placement."""

from __future__ import annotations

from dataclasses import replace

import click

from trimtab.cli import output
from trimtab.cli.model_options import ModelOptions, model_options
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
@output.leg_option
@output.json_option
@model_options
def judge(
    workload: str, placement: str, current: str | None, leg: float, latency: ModelOptions, as_json: bool
) -> None:  # fmt: skip
    """Compute the figures of PLACEMENT, a placement file, on WORKLOAD, a folder.

    Exit code 1 if the placement exceeds a broker's limit, or a topic is out of its latency bound, in the simulation or
    by the network.
    """
    with output.progress(quiet=as_json) as bar:
        step = bar.add_task("reading", total=2)
        load, mixed = read_workload(workload), has_several_units(placement)
        if mixed and current is not None:
            raise BadInput(f"{placement} has several units; --current compares placements of one unit")
        chosen = None
        if mixed:
            latency.refuse(f"{placement} has several units")
            unit, judgement = "mixed", judge_routing(load, RoutingTable.of_keys(read_keys(load, placement)))
        else:
            problem, placement_read = read_placement(load, placement)
            problem = replace(problem, leg=leg)
            if problem.unit == "topic":
                chosen = latency.chosen()
                problem = replace(problem, hardware=chosen.hardware)
            else:
                latency.refuse(f"{placement} places {problem.unit}s")
            if current is not None:
                problem = output.problem_of(workload, problem.unit, current, problem.hardware, leg)
            bar.update(step, advance=1, description="judging")
            unit, judgement = placement_read.unit, referee(problem, placement_read)
        bar.update(step, advance=1)
    if judgement.latency is None:
        chosen = None  # nothing was simulated
    if as_json:
        hardware = {"hardware": chosen.hardware.name, "hardware_from": chosen.where} if chosen else {}
        output.print_json({"unit": unit, "judgement": judgement.as_json()} | hardware)
    else:
        rows = output.judgement_rows(judgement) + (chosen.rows(planned=False) if chosen else [])
        output.print_table(f"{placement} on {workload}", ["figure", "value"], rows)
        output.print_violations(judgement)
        output.print_out_of_bound(judgement)
        if chosen and chosen.hint:
            click.echo(chosen.hint)
    far = judgement.network.topics_out_of_bound if judgement.network else 0
    if far and not as_json:
        click.echo(f"{far:,} topic{'' if far == 1 else 's'} out of bound by the network")
    if not judgement.feasible or output.out_of_bound(judgement) or far:
        raise SystemExit(1)
