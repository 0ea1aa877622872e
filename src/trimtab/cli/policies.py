"""``trimtab policies``: lists the policies and their knobs."""

from __future__ import annotations

from typing import Any

import click

from trimtab.cli import output
from trimtab.cli.policy_options import setting
from trimtab.place.knobs import TYPES, knobs, shown
from trimtab.place.registry import about, find_family
from trimtab.place.registry import policies as policies_of


@click.command()
@click.argument("name", required=False)
@click.option("--family", help="Only policies of this family: link, client or topic.")
@output.json_option
def policies(name: str | None, family: str | None, as_json: bool) -> None:
    """List the policies with their knobs and defaults, or show the policy NAME (FAMILY/NAME) in detail.

    A knob is set with --set KNOB=VALUE on `trimtab plan`, `compare` and `rebalance`.
    """
    if name is None:
        names = policies_of(family)
        if as_json:
            output.print_json([_as_json(policy) for policy in names])
        else:
            rows = [(policy, about(policy)[0], _defaults(policy)) for policy in names]
            columns = ["policy", "what it does", "knobs and defaults"]
            output.print_table("policies", columns, rows, left=(0, 1, 2), wrap=(1, 2))
        return
    chosen = output.named_policy(family, name)
    if as_json:
        output.print_json(_as_json(chosen))
    else:
        _show(chosen)


def _defaults(policy: str) -> str:
    return setting({knob.name: knob.default for knob in knobs(policy)}) or "-"


def _show(policy: str) -> None:
    line, details = about(policy)
    question = find_family(policy.split("/")[0])
    click.echo(f"{policy}: {line}")
    click.echo(f"question: {question.question}; it places {question.unit}s")
    if details:
        click.echo(f"\n{details}")
    rows = [(knob.name, TYPES[knob.kind], shown(knob.default), knob.range, knob.about) for knob in knobs(policy)]
    if not rows:
        click.echo("\nno knobs")
        return
    click.echo()
    columns = ["knob", "type", "default", "range", "meaning"]
    output.print_table(f"knobs of {policy}", columns, rows, left=(0, 1, 3, 4), wrap=(3, 4))


def _as_json(policy: str) -> dict[str, Any]:
    line, details = about(policy)
    family = policy.split("/")[0]
    return {
        "policy": policy, "family": family, "unit": find_family(family).unit, "about": line, "details": details,
        "knobs": [knob.as_json() for knob in knobs(policy)],
    }  # fmt: skip
