"""``trimtab train``: trains models that predict the latency of topics that share a broker."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.numbers import Number, Numbers
from trimtab.cli.packed import packed
from trimtab.predict.accuracy import BOUND_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trimtab.model.hardware import Hardware
    from trimtab.pipeline.models import Data as Known
    from trimtab.pipeline.models import Trained
    from trimtab.pipeline.training import Plan
    from trimtab.predict.samples import Samples
    from trimtab.predict.trim import TrimModel

NAMES = ("poly4", "mlp", "trim")
SAMPLES = "samples"
PER_REQUEST = 33  # random sets beside which one request of topics is packed: two packed sets to three random ones


@dataclass(frozen=True, slots=True)
class Data:
    """What to train on."""

    profile: str | None
    samples: str | None
    source: str | None
    most: int
    configurations: int
    processing: tuple[float, ...] | None
    bound: float
    seconds: float | None


@click.command()
@click.option("--profile", metavar="NAME|FILE", help="Hardware to simulate: a named profile, or a profile.json that "
              "trimtab profile has written. With --samples: what is assumed of the hardware before.")  # fmt: skip
@click.option("--samples", type=click.Path(file_okay=False), metavar="DIR",
              help="Train on measured samples, such as those of trimtab profile, not on simulated ones.")  # fmt: skip
@click.option("--from", "source", type=click.Path(file_okay=False), metavar="MODEL",
              help="Adapt this trim model of other hardware; 20 to 50 measured sets are enough.")  # fmt: skip
@click.option("--k", "most", type=click.IntRange(1, 12), default=6, show_default=True,
              help="Most topics on a broker, of simulated samples.")  # fmt: skip
@click.option("--configurations", type=click.IntRange(min=1), default=1000, show_default=True,
              help="Simulated sets to train on, of each number of topics.")  # fmt: skip
@click.option("--processing", type=Numbers(Number(min=0.0, min_open=True)), metavar="MS,...",
              help="Processing times that simulated topics are drawn from, in ms [default: 10,20,30,40].")  # fmt: skip
@click.option("--bound", type=Number(min=0.0, min_open=True), default=BOUND_MS, show_default=True, metavar="MS",
              help="Latency bound: simulated topics have rates up to it, and cards count predictions on its wrong "
              "side.")  # fmt: skip
@click.option("--seconds", type=Number(min=10.0, max=3600.0), metavar="S",
              help="Length of a simulated run [default: 120].")  # fmt: skip
@click.option("--predictor", "names", type=click.Choice(NAMES), multiple=True,
              help="What to train [default: all; trim alone with --samples or --from].")  # fmt: skip
@click.option("--out", required=True, type=click.Path(file_okay=False), metavar="DIR",
              help="Folder for the models, one folder each, and for simulated samples.")  # fmt: skip
@output.seed_option
@output.json_option
@packed("data", Data)
def train(data: Data, names: tuple[str, ...], out: str, seed: int, as_json: bool) -> None:
    """Train, evaluate and store models of p90 latency, each with a card that says how good it is.

    Without --samples, sets of topics are simulated on Spark.
    """
    from trimtab.errors import BadInput
    from trimtab.model.replacement import replacing
    from trimtab.pipeline.models import Data as Known
    from trimtab.pipeline.models import Task, fitted, write
    from trimtab.pipeline.models import as_json as described
    from trimtab.pipeline.training import refuse_other_samples
    from trimtab.predict.store import read_hardware, refuse_other_files

    if data.profile is None and data.samples is None:
        raise BadInput("there is nothing to train on: give --profile (to simulate) or --samples (measured ones)")
    if data.samples is not None and (data.processing is not None or data.seconds is not None):
        option = "--processing" if data.processing is not None else "--seconds"
        raise BadInput(f"{option} is about simulated samples; measured ones (--samples) are as they are")
    prior = None if data.profile is None else read_hardware(data.profile)
    few = data.samples is not None or data.source is not None
    task = Task(names or (("trim",) if few else NAMES), seed, _source(data.source), prior, data.bound)
    predictors, home = task.predictors(), Path(out)  # refused before anything is simulated
    for each in predictors:
        refuse_other_files(home / each.name)
    plan = None if data.samples is not None or prior is None else _plan(prior, data, seed)
    if plan is not None:
        refuse_other_samples(home / SAMPLES)
        for each in predictors:
            each.refuse_too_few(plan.sizes_for(each.name))
    with output.progress(quiet=as_json) as bar, output.writing(home / SAMPLES), contextlib.ExitStack() as stack:
        if plan is None:
            known = Known(_measured(Path(data.samples or "")))
        else:
            step = bar.add_task("simulating", total=None)
            fresh = stack.enter_context(replacing(home / SAMPLES, refuse_other_samples))
            known = _simulated(plan, fresh, lambda done, total: bar.update(step, completed=done, total=total))
        step = bar.add_task("training", total=len(task.names))
        trained = fitted(task, known, home, lambda: bar.advance(step))
        stack.close()  # all models are fitted: samples take their place, then models
        write(trained)
    if as_json:
        output.print_json({"out": out, "hardware": known.samples.hardware.name, "sets": len(known.samples),
                           "models": described(trained)})  # fmt: skip
    else:
        _print(trained)


def _source(folder: str | None) -> TrimModel | None:
    from trimtab.errors import BadInput
    from trimtab.predict.store import read_model
    from trimtab.predict.trim import TrimModel

    if folder is None:
        return None
    model = read_model(Path(folder))
    if not isinstance(model, TrimModel):
        raise BadInput(f"{folder} holds a model of '{model.name}', but only 'trim' can be adapted to new hardware")
    return model


def _measured(folder: Path) -> Samples:
    """Of the folder, or of the samples of a profile in the folder."""
    from trimtab.predict.samples import PROVENANCE, Samples

    inner = folder / SAMPLES
    return Samples.read(inner if (inner / PROVENANCE).exists() else folder)


def _plan(hardware: Hardware, data: Data, seed: int) -> Plan:
    from trimtab.pipeline.training import Plan

    tests = max(data.configurations // 4, 10)
    requests = -(-data.configurations * data.most // PER_REQUEST) if data.most > 1 else 0
    chosen: dict[str, Any] = {} if data.seconds is None else {"run_s": data.seconds}
    if data.processing is not None:
        chosen["processing_ms"] = tuple(sorted(set(data.processing)))
    return Plan(hardware, data.most, data.configurations, tests, requests, seed, bound_ms=data.bound, **chosen)


def _simulated(plan: Plan, folder: Path, progressed: Callable[[int, int], None]) -> Known:
    from trimtab.config import load
    from trimtab.pipeline.models import Data as Known
    from trimtab.pipeline.session import ONCE, open_session
    from trimtab.pipeline.training import simulate_samples

    spark = open_session("trimtab train", ONCE | load().spark, quiet=True)
    try:
        found = simulate_samples(spark, plan, folder, progressed)
        return Known(found.train, found.test, found.packed, plan.processing_ms)
    finally:
        with contextlib.suppress(Exception):  # a signal that ends this command has ended Java too
            spark.stop()


def _print(trained: Sequence[Trained]) -> None:
    rows = [
        (
            one.card.predictor, str(size), f"{each.accuracy.r2:.4f}", output.percent(each.accuracy.error, 1),
            output.percent(each.accuracy.wrong), output.percent(each.covered, 1),
        )
        for one in trained
        for size, each in [*one.card.by_size.items(), *([("chosen by it", one.card.chosen)] if one.card.chosen else [])]
    ]  # fmt: skip
    columns = ["model", "topics", "R2 of log p90", "median error", "wrong side of the bound", "in the 90 % interval"]
    first = trained[0].card
    title = f"Models for {first.hardware}, on {first.tested}; bound {first.bound_ms:g} ms"
    output.print_table(title, columns, rows)
    for one in trained:
        click.echo(one.folder)
