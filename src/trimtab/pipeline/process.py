"""The process of a pipeline: ``python -m trimtab.pipeline.process SETTINGS.json``, or ``trimtab pipeline``."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.fleet.site.processes import PipelineProcess, begin
from trimtab.pipeline.run import run as run_pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.pipeline.driver import Done, Driver


def run(
    process: PipelineProcess, *, step: Callable[[str], None], on_execution: Callable[[Done], None],
    on_ready: Callable[[Driver], None],
) -> None:  # fmt: skip
    """Run until SIGINT or SIGTERM.

    ``step`` is called at every step of the start, ``on_ready`` after the start, and ``on_execution`` after every
    execution.
    """
    from trimtab.config import load

    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stop.append(number))
    settings = load().spark if process.spark is None else process.spark
    manifest = Path(process.manifest) if process.manifest else None
    run_pipeline(
        manifest, Path(process.home), settings, stopping=lambda: bool(stop), step=step, on_execution=on_execution,
        on_ready=on_ready,
    )  # fmt: skip


def execution(done: Done) -> str:
    """A line about an execution of a channel."""
    index = ", by index" if done.indexed else ""
    left_out = f"; {done.left_out:,} rows left out: {done.reason}" if done.left_out else ""
    return (
        f"{done.channel} #{done.execution}: {done.publications:,} publications x {done.subscriptions:,} subscriptions "
        f"-> {done.results:,} results, {done.rows:,} rows, {done.took_s:.2f} s{index}{left_out}"
    )


def ready(driver: Driver) -> str:
    return f"the pipeline of '{driver.app.name}' is up; channels: {', '.join(driver.plans) or 'none'}"


def _run(process: PipelineProcess) -> None:
    run(
        process, step=lambda _: None, on_execution=lambda done: print(execution(done), flush=True),
        on_ready=lambda driver: print(ready(driver), flush=True),
    )  # fmt: skip


if __name__ == "__main__":
    begin(PipelineProcess, _run)
