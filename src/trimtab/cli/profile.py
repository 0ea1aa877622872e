"""``trimtab profile``: measures a broker's machine by load tests, and fits a hardware profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.numbers import Number

if TYPE_CHECKING:
    from trimtab.lab.profile.design import Design
    from trimtab.lab.profile.fitting import Profile
    from trimtab.lab.profile.measure import Journal, Machine, Where

FAST_RUNS, FAST_S = 12, 2.0
FAST_LONGEST_MS, FAST_RATE = 12.0, 14  # so that even a run of two seconds has enough messages for a percentile


@click.command()
@click.option("--out", required=True, type=click.Path(file_okay=False), metavar="DIR",
              help="Folder for the runs, the samples and the profile. A folder with runs is resumed.")  # fmt: skip
@click.option("--home", type=click.Path(file_okay=False),
              help="Measure a broker of the fleet in this folder [default: start a fleet for it].")  # fmt: skip
@click.option("--broker", help="With --home: the broker [default: the first by name].")
@click.option("--history", type=click.Path(file_okay=False), metavar="HISTORY",
              help="Instead of load tests, use the pipeline's folder of history of a fleet.")  # fmt: skip
@click.option("--cores", type=click.IntRange(min=1),
              help="Cores of the broker's machine, if it is not this machine.")  # fmt: skip
@click.option("--runs", type=click.IntRange(min=1), default=40, show_default=True, help="Co-locations to measure.")
@click.option("--seconds", type=Number(min=1.0, max=600.0), default=12.0, show_default=True,
              help="Length of a run.")  # fmt: skip
@click.option("--k", "most", type=click.IntRange(1, 12), default=6, show_default=True,
              help="Most topics in a co-location.")  # fmt: skip
@click.option("--name", help="Name of the profile [default: of the machine].")
@click.option("--stop-after", type=Number(min=0.0, infinite=True), metavar="SECONDS",
              help="Begin no run later than this; the same command goes on later.")  # fmt: skip
@click.option("--tolerate", type=Number(min=0.0), default=0.1, show_default=True, metavar="CORES",
              help="Other work on the machine, above the usual, with which a run still counts.")  # fmt: skip
@click.option("--fast", is_flag=True, help="A few short runs: shows how it works, too noisy to be used.")
@output.seed_option
@output.json_option
def profile(
    out: str, home: str | None, broker: str | None, cores: int | None, as_json: bool, fast: bool, **options: Any
) -> None:
    """Measure a broker's machine and fit a hardware profile to it.

    Topics whose processors burn CPU time are placed on a real broker, several at a time, and publishers send to them.
    Every run adds to DIR at once; the same command goes on where an earlier one ended, and a larger --runs adds to it.
    The broker should have nothing else to do meanwhile.
    """
    from trimtab.errors import BadInput
    from trimtab.lab.profile.design import Design
    from trimtab.lab.profile.measure import Journal, Where

    if options["history"] is not None:
        if home is not None:
            raise BadInput(
                "--history is about the past of a fleet, --home about a fleet to be tested: give one of them"
            )
        _from_history(Path(options["history"]), Path(out), _machine(cores, options["name"]), options["seed"], as_json)
        return
    if home is None and (broker is not None or cores is not None):
        raise BadInput("--broker and --cores are about a running fleet: give its folder with --home")
    where = Where(Path(home) if home else None, broker, cores)
    shape: dict[str, Any] = {}
    if fast:
        options |= {"runs": min(options["runs"], FAST_RUNS), "seconds": min(options["seconds"], FAST_S)}
        shape = {"longest_ms": FAST_LONGEST_MS, "least_rate": FAST_RATE}
    journal = Journal(Path(out), where.machine(), options["tolerate"])
    design = Design(options["runs"], options["most"], float(journal.machine.cores), seed=options["seed"], **shape)
    _run(Path(out), where, journal, design, options, as_json)


def _run(out: Path, where: Where, journal: Journal, design: Design, options: dict[str, Any], as_json: bool) -> None:
    from trimtab.fleet import tasks
    from trimtab.lab.profile import files
    from trimtab.lab.profile.fitting import profile_of
    from trimtab.lab.profile.measure import measure

    plan, seconds = design.plan(), options["seconds"]
    limit = options["stop_after"]
    with output.progress(quiet=as_json) as bar, output.writing(out / files.REPORT):
        task = bar.add_task("load tests", total=len(plan))

        def step(text: str) -> None:
            bar.update(task, description=text)

        trials = tasks.run(
            measure(
                plan, seconds, journal, where, lambda done, total: bar.update(task, completed=done, total=total),
                float("inf") if limit is None else limit,
            )
        )  # fmt: skip
        state = {"out": str(out), "runs": len(trials), "of": len(plan), "disturbed": journal.disturbed}
        if len(trials) < len(plan) and limit is not None:
            _answer(state | {"complete": False}, None, as_json)
            return
        name = options["name"] or journal.machine.name
        fitted = profile_of(
            trials, journal.machine, name, design.seed, step, design=_described(design), at=trials[0].at
        )
        files.write(fitted, out)
    _answer(state | {"complete": len(trials) == len(plan)} | fitted.as_json(), fitted, as_json)


def _machine(cores: int | None, name: str | None) -> Machine:
    """The brokers' machines, of which a history says nothing."""
    from trimtab.lab.profile.measure import Machine

    here = Machine.here()
    return Machine(name or "fleet", here.cores if cores is None else cores, "from telemetry")


def _from_history(history: Path, out: Path, machine: Machine, seed: int, as_json: bool) -> None:
    from trimtab.config import load
    from trimtab.lab.profile import files
    from trimtab.lab.profile.fitting import fitted_to
    from trimtab.lab.profile.results import guess_of
    from trimtab.pipeline.history import check_folders
    from trimtab.pipeline.hosted import read_samples
    from trimtab.pipeline.session import ONCE, open_session

    check_folders(history)
    with output.progress(quiet=as_json) as bar, output.writing(out / files.REPORT):
        task = bar.add_task("reading history", total=3)
        spark = open_session("trimtab profile", ONCE | load().spark, quiet=True)
        try:
            samples = read_samples(spark, history, guess_of(machine), history=str(history))
        finally:
            spark.stop()
        fitted = fitted_to(samples, machine.name, seed, lambda text: bar.update(task, description=text, advance=1))
        files.write(fitted, out)
    state = {"out": str(out), "runs": len(samples), "of": len(samples), "disturbed": 0, "complete": True}
    _answer(state | fitted.as_json(), fitted, as_json)


def _described(design: Design) -> dict[str, Any]:
    return {name: getattr(design, name) for name in design.__slots__}


def _answer(values: dict[str, Any], fitted: Profile | None, as_json: bool) -> None:
    from trimtab.lab.profile.files import figures

    if as_json:
        output.print_json(values)
        return
    if values["disturbed"]:
        click.echo(f"{values['disturbed']} runs were disturbed by other work on the machine and do not count", err=True)
    if fitted is None:
        click.echo(f"{values['runs']} of {values['of']} runs are done; the same command goes on from here")
    else:
        title = f"profile '{fitted.fit.model.hardware.name}' in {values['out']}"
        note = fitted.advice.sentence(fitted.noise)
        if not values["complete"]:
            note += (
                f"; {values['of'] - values['runs']} runs are missing: the same command measures them when it is quiet"
            )
        output.print_table(title, ["", ""], figures(fitted), note=note, left=range(2), wrap=(1,))
