"""``trimtab lab``: the papers' experiments."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from trimtab.cli import output
from trimtab.cli.numbers import Number
from trimtab.lab.experiments import EXPERIMENTS, experiment


@click.group()
def lab() -> None:
    """Run the papers' experiments: rows as Parquet, a report in Markdown with plots as PNG."""


@lab.command("list")
@output.json_option
def list_experiments(as_json: bool) -> None:
    """List the experiments."""
    if as_json:
        output.print_json([{"name": name, "shows": shows} for name, (_, shows) in EXPERIMENTS.items()])
    else:
        output.print_table("experiments", ["name", "what it shows"], [(n, s) for n, (_, s) in EXPERIMENTS.items()])


@lab.command("run")
@click.argument("name")
@click.option("--seeds", type=click.IntRange(min=1), help="Number of seeds [default: the experiment's own].")
@click.option("--out", type=click.Path(file_okay=False), help="Folder for results [default: out/lab/NAME].")
@click.option("--workers", type=click.IntRange(min=1), default=os.cpu_count() or 1, show_default=True,
              help="Number of processes; an experiment that measures time uses one.")  # fmt: skip
@click.option("--on", "on", type=click.Choice(["processes", "spark"]), default="processes", show_default=True,
              help="Where jobs run: in processes of this machine, or on Spark.")  # fmt: skip
@click.option("--moves", type=click.IntRange(min=1), help="Number of moves, for experiments with moves.")
@click.option("--profile", type=click.Path(file_okay=False), metavar="DIR",
              help="Folder of trimtab profile, for experiments that fit a model.")  # fmt: skip
@click.option("--seconds", type=click.IntRange(min=1), help="Length of a run, for experiments on real brokers.")
@click.option("--tolerate", type=Number(min=0.0), metavar="CORES",
              help="Other work on the machine with which a run on a real broker still counts.")  # fmt: skip
@click.option("--scale", type=click.IntRange(min=1), metavar="PERCENT",
              help="Percent of the samples, for experiments with samples: less is for trying them out.")  # fmt: skip
@click.option("--policy", multiple=True, metavar="NAME",
              help="Who moves topics, for live experiments with bounds; may be repeated.")  # fmt: skip
@click.option("--rate", type=Number(min=0.01), help="Messages/s of each client, for the same experiments.")
@click.option("--clients", type=click.IntRange(min=2), help="Number of clients, for experiments with clients.")
@click.option("--still", is_flag=True, default=None, help="Nobody moves, for live experiments with bounds.")
@click.option("--kill-hub", is_flag=True, default=None,
              help="The hub is away for a minute, for the same experiments.")  # fmt: skip
@click.option("--side", type=Number(min=0.1), metavar="KM",
              help="Side of the city, for uav-live: in a smaller one, zones change more often.")  # fmt: skip
@click.option("--bound", type=Number(min=0.1), metavar="MS",
              help="Bound of latencies in ms, for the experiment overload.")  # fmt: skip
@click.option("--matrix", type=click.Path(), multiple=True, metavar="FILE",
              help="File of round-trip times, for experiments with coordinates; may be repeated.")  # fmt: skip
@click.option("--unit", type=click.Choice(["ms", "s"]), help="Unit of the numbers in --matrix [default: ms].")
@click.option("--peers", type=click.IntRange(min=1), help="Peers that each node probes, for the same experiments.")
@output.json_option
def run_experiment(
    name: str, seeds: int | None, out: str | None, workers: int, on: str, as_json: bool, **knobs: Any
) -> None:
    """Run experiment NAME. A run that was stopped resumes after its last finished job.

    Exit code 1 if a requirement is not met.
    """
    from trimtab.lab.run import run

    title = experiment(name).title
    home = Path(out) if out else Path("out/lab") / name
    with output.progress(quiet=as_json) as bar, output.writing(home / "report.md"):
        step = bar.add_task(name, total=None)
        given = {knob: value for knob, value in knobs.items() if value not in (None, ())}
        finished = run(
            name, seeds, home, workers, lambda done, total: bar.update(step, completed=done, total=total), on, **given
        )
    if as_json:
        output.print_json(
            {
                **finished.figures,
                "experiment": name,
                "out": str(home),
                "rows": finished.rows,
                "judged": finished.judged,
                "bars": [{"claim": b.claim, "value": b.value, "met": b.met} for b in finished.bars],
                "files": [str(path) for path in finished.files],
            }
        )
    else:
        rows = [(b.claim, f"{b.value:.6g}", "yes" if b.met else "NO") for b in finished.bars]
        note = None if finished.judged else f"too few seeds to check: {experiment(name).seeds} are needed"
        output.print_table(f"{title}: {finished.rows:,} rows", ["must show", "measured", "met"], rows, note=note)
        for path in finished.files:
            click.echo(path)
    if not finished.good:
        raise SystemExit(1)
