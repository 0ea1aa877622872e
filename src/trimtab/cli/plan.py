"""``trimtab plan``: computes a placement of a workload."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trimtab.cli import output
from trimtab.cli.model_options import ModelOptions, model_options
from trimtab.cli.packed import packed
from trimtab.cli.policy_options import PolicyOptions, policy_options, setting
from trimtab.errors import BadInput
from trimtab.lab.answer import ask
from trimtab.model.folder import write_workload
from trimtab.model.placement import UNPLACED
from trimtab.model.placement_file import write_placement
from trimtab.model.problem import Problem
from trimtab.place.registry import find_family

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.lab.answer import Answer
    from trimtab.place.topic.measured import Unreachable
    from trimtab.place.topic.misfits import Misfit

LISTED: Final = 5  # topics that are named one by one


@dataclass(frozen=True, slots=True)
class Written:
    """What is written, and where."""

    out: str | None
    form: Any  # csv or parquet
    split_to: str | None


@click.command()
@click.argument("workload", type=click.Path())
@click.option("--family", help="The question: link, client or topic. Not needed with --policy FAMILY/NAME.")
@click.option("--policy", default="trim", show_default=True, help="Policy that places the units.")
@policy_options(60.0)
@click.option("--out", type=click.Path(file_okay=False), help="Folder for the placement file.")
@click.option("--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True)
@click.option("--split", "split_to", type=click.Path(file_okay=False), metavar="DIR",
              help="Family topic: split topics that are too much for every broker by their publishers, write the "
              "workload with the parts to DIR, and plan that.")  # fmt: skip
@output.json_option
@model_options
@packed("written", Written)
def plan(
    workload: str,
    family: str | None,
    policy: str,
    options: PolicyOptions,
    latency: ModelOptions,
    written: Written,
    as_json: bool,
) -> None:
    """Compute which broker serves which unit of WORKLOAD, a folder of topics, clients, brokers and links.

    Exit code 1 if a limit is exceeded, a topic has no broker, or a topic is out of its latency bound in the simulation.
    """
    name = output.named_policy(family, policy)
    knobs = options.knobs(name.split("/")[0], [name])[name]
    chosen = latency.chosen_for({name: knobs})
    with output.progress(quiet=as_json) as bar:
        step = bar.add_task("reading", total=3)
        family = name.split("/")[0]
        problem = output.problem_of(workload, find_family(family).unit, options.current, chosen.hardware, options.leg)
        if written.split_to is not None:
            problem = _with_parts(problem, family, written.split_to, written.form)
        bar.update(step, advance=1, description=f"planning with {name}")
        answer = ask(name, problem, time_limit_s=options.time_limit_s, model=chosen.model, **knobs)
        bar.update(step, advance=1, description="writing")
        path = None
        if written.out is not None:
            path = Path(written.out) / f"placement.{written.form}"
            with output.writing(path):
                write_placement(problem, answer.placement, path)
            other = path.with_suffix(".parquet" if written.form == "csv" else ".csv")
            other.unlink(missing_ok=True)  # a folder has one placement file
        bar.update(step, advance=1)
    left, late = _left_over(problem, answer, family), _unreachable(problem, family)
    simulated = answer.judgement.latency is not None
    if as_json:
        more = {}
        if family == "topic":
            more = {"left_over": [each.as_json() for each in left], "unreachable": [each.as_json() for each in late]}
        more |= chosen.as_json() if simulated else {}
        output.print_json(answer.as_json() | {"placement": str(path) if path else None} | more)
    else:
        apart = output.distance(answer.achieved, answer.bound)
        proof = "proven optimal" if answer.proven_optimal else f"within {apart} of the bound"
        bound = f"{output.number(answer.bound.value)} ({answer.bound.kind})"
        if answer.proven_optimal and output.out_of_bound(answer.judgement):
            proof = "proven optimal by prediction, but not every bound is kept in the simulation"
        side = "upper" if answer.bound.more_is_better else "lower"
        rows = [*output.judgement_rows(answer.judgement), (f"{side} bound", bound), ("", proof)]
        rows.append(("took", output.seconds(answer.seconds)))
        rows += chosen.rows() if simulated else []
        if answer.knobs:
            rows.append(("knobs set", setting(answer.knobs)))
        output.print_table(f"{name} on {workload}", ["figure", "value"], rows)
        output.print_violations(answer.judgement)
        output.print_out_of_bound(answer.judgement)
        _print_left_over(left, answer)
        _print_listed(late, "topics with a bound that no broker can keep")
        if simulated and chosen.hint:
            click.echo(chosen.hint)
        click.echo(f"placement: {path}" if path else "nothing written; --out DIR keeps the placement")
    unserved = family == "topic" and answer.judgement.unplaced
    if not answer.judgement.feasible or unserved or output.out_of_bound(answer.judgement) or late:
        raise SystemExit(1)


def _with_parts(problem: Problem, family: str, folder: str, form: Any) -> Problem:
    """The problem with parts instead of topics that are too much for every broker; its workload is written."""
    from trimtab.place.topic.misfits import split

    if family != "topic":
        raise BadInput(f"--split is about topics that are placed as a whole; family '{family}' does not know it")
    if problem.current is not None:
        raise BadInput(
            "--split changes the topics, so that a current placement does not fit them; leave one of them out"
        )
    workload = split(problem)
    with output.writing(Path(folder) / "topics"):
        write_workload(workload, folder, form)
    return Problem(workload, problem.unit, hardware=problem.hardware, leg=problem.leg)


def _left_over(problem: Problem, answer: Answer, family: str) -> list[Misfit]:
    """Topics without a broker because they are too much for every one."""
    topics = problem.workload.topics
    if family != "topic" or not answer.judgement.unplaced or topics.processing_ms is None or topics.latency_ms is None:
        return []
    from trimtab.place.topic.misfits import misfits

    return [each for each in misfits(problem) if answer.placement.broker[each.row] == UNPLACED]


def _unreachable(problem: Problem, family: str) -> list[Unreachable]:
    """Topics whose bound is below their network latency at every broker."""
    if family != "topic":
        return []
    from trimtab.place.topic.measured import unreachable

    return unreachable(problem)


def _print_listed(found: Sequence[object], noun: str) -> None:
    for each in found[:LISTED]:
        click.echo(f"  {each}")
    if len(found) > LISTED:
        click.echo(f"  ... and {len(found) - LISTED:,} more {noun}")


def _print_left_over(left: list[Misfit], answer: Answer) -> None:
    _print_listed(left, "such topics")
    others = answer.judgement.unplaced - len(left)
    if answer.judgement.latency is not None and others:
        click.echo(f"  {others:,} topics find no broker, since the brokers are too few: add brokers or raise k")
    elif answer.judgement.network is not None and others:
        click.echo(f"  {others:,} topics find no broker with room for them: add brokers, or raise fill or messages")
