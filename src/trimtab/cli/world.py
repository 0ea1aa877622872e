"""``trimtab world``: writes a generated workload to a folder."""

from __future__ import annotations

import dataclasses
from typing import Any

import click

from trimtab.cli.numbers import Number
from trimtab.cli.output import json_option, number, print_json, print_table, seed_option
from trimtab.errors import BadInput
from trimtab.lab.worlds import WORLDS, world_class
from trimtab.model.folder import write_workload


def world_options(command: Any) -> Any:
    """One option per field of every world; a world that lacks the field refuses the option."""
    options: dict[str, click.Option] = {}
    for name, kind in WORLDS.items():
        for field in dataclasses.fields(kind):  # type: ignore[arg-type]
            text = f"{name}: {field.metadata['help']} [default: {field.default}]"
            if field.name in options:
                text = f"{options[field.name].help}; {text}"
            kind_of_value: Any = type(field.default)
            if kind_of_value is float:
                kind_of_value = Number(infinite=True)  # worlds have ranges of their own, which contain no NaN
            options[field.name] = click.Option([f"--{field.name.replace('_', '-')}"], type=kind_of_value, help=text)
    command.params.extend(options.values())
    return command


@world_options
@click.command()
@click.argument("name")
@click.option("--out", required=True, type=click.Path(file_okay=False), help="Folder to write; created if missing.")
@click.option("--format", "form", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True)
@seed_option
@json_option
def world(name: str, out: str, form: Any, seed: int, as_json: bool, **options: Any) -> None:
    """Write the generated workload NAME (maxdata, bad, reloc, colocation, mmog or uav) to a folder.

    maxdata is the instance generator of Lambert & Sakellariou, Section V; bad is the simulated system of Nguyen et al.,
    Section 6.2; reloc is the field of Tanaka et al., Section 7; colocation is a request of Khare et al., Section VI-C;
    mmog and uav are the game and the swarms of vehicles of Gupta et al., Section 5.1, with network coordinates.
    """
    kind = world_class(name)
    chosen_options = {option: value for option, value in options.items() if value is not None}
    own = {field.name for field in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for option in chosen_options.keys() - own:
        raise BadInput(f"world '{name}' has no option --{option.replace('_', '-')}; it has: {', '.join(sorted(own))}")
    instance = kind(**chosen_options)
    workload = instance.make(seed)
    write_workload(workload, out, form)
    sizes = {n: len(getattr(workload, n)) for n in ("topics", "clients", "brokers", "links")}
    if as_json:
        print_json({"world": name, "options": dataclasses.asdict(instance), "seed": seed, "out": out, **sizes})  # type: ignore[call-overload]
    else:
        print_table(
            f"{instance} with seed {seed}, in {out}",
            ["table", "rows"],
            [(n, number(s)) for n, s in sizes.items()],
        )
