"""Runs an experiment: shows progress, resumes interrupted runs, writes rows and a report."""

from __future__ import annotations

import inspect
import json
import multiprocessing
import os
import platform
import signal
import subprocess
import threading
from concurrent.futures import (
    FIRST_COMPLETED,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    as_completed,
    wait,
)
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trimtab import config
from trimtab.errors import BadInput
from trimtab.lab.experiment import InTwoStages, bars_table
from trimtab.lab.experiments import experiment as find
from trimtab.model import tables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trimtab.lab.experiment import Bar, Job, Row

JOURNAL: Final = "journal.jsonl"
PROCESSES, SPARK = "processes", "spark"  # where jobs run
VERSIONS: Final = ("trimtab", "numpy", "numba", "highspy")


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a finished run."""

    rows: int
    bars: tuple[Bar, ...]
    judged: bool  # whether the run had enough seeds to check the bars
    files: tuple[Path, ...]
    figures: dict[str, Any]

    @property
    def good(self) -> bool:
        return not self.judged or all(bar.met for bar in self.bars)


def run(
    name: str, seeds: int | None, out: Path, workers: int, progressed: Callable[[int, int], None], on: str = PROCESSES,
    **knobs: int | float | str | tuple[str, ...],
) -> Run:  # fmt: skip
    """Run all jobs whose rows ``out`` does not contain yet, then write rows, figures and report.

    A journal has a line per finished job, so a run that was stopped or killed resumes after the last finished job.
    """
    experiment = find(name)
    seeds = experiment.seeds if seeds is None else seeds
    for knob in knobs:
        if knob not in inspect.signature(experiment.jobs).parameters:
            raise BadInput(f"experiment '{name}' has no knob '{knob}'")
    jobs = experiment.jobs(seeds, **knobs)
    out.mkdir(parents=True, exist_ok=True)
    done = _read_journal(out / JOURNAL, name)
    with (out / JOURNAL).open("a") as journal:
        if journal.tell() == 0:
            print(json.dumps({"experiment": name, "commit": _commit()}), file=journal, flush=True)

        def carry_out(jobs: list[Job]) -> list[Row]:
            waiting = [job for job in jobs if _key(job) not in done]
            progressed(len(jobs) - len(waiting), len(jobs))
            finished = _on_spark if on == SPARK else _finished
            for count, (job, rows) in enumerate(finished(name, waiting, 1 if experiment.timed else workers), 1):
                print(json.dumps({"job": job, "rows": rows}), file=journal, flush=True)
                done[_key(job)] = rows
                progressed(len(jobs) - len(waiting) + count, len(jobs))
            return [job | row for job in jobs for row in done[_key(job)]]

        rows = carry_out(jobs)
        if isinstance(experiment, InTwoStages):
            rows += carry_out(experiment.further(rows))

    columns = list(dict.fromkeys(name for row in rows for name in row))  # of all rows, since their columns may differ
    tables.write(pa.table({name: [row.get(name) for row in rows] for name in columns}), out / "rows.parquet")
    report = experiment.report(rows, out)
    first_commit = json.loads((out / JOURNAL).read_text().splitlines()[0]).get("commit", "unknown")
    settings = {
        "experiment": name,
        "seeds": seeds,
        "commit": first_commit if first_commit == _commit() else f"{first_commit}, finished at {_commit()}",
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "python": platform.python_version(),
        **{package: version(package) for package in VERSIONS},
    }
    enough = seeds >= experiment.seeds
    note = "" if enough else f"\n\n{seeds} seeds are too few to check the requirements; {experiment.seeds} are needed."
    facts = ", ".join(f"{key} {value}" for key, value in settings.items())
    text = f"# {experiment.title}\n\n{report.text}\n\n## Requirements\n\n{bars_table(report.bars)}{note}\n\n{facts}\n"
    (out / "report.md").write_text(text)
    (out / "run.json").write_text(json.dumps(settings, indent=2) + "\n")
    files = tuple(sorted(path for path in out.iterdir() if path.suffix in (".md", ".png", ".parquet")))
    return Run(len(rows), report.bars, enough, files, report.figures)


def _finished(name: str, jobs: list[Job], workers: int) -> Iterator[tuple[Job, list[Row]]]:
    """Run jobs in processes; yields each job with its rows as it finishes."""
    if workers <= 1 or len(jobs) <= 1:
        experiment = find(name)
        for job in jobs:
            yield job, experiment.run(job)
        return
    queue = list(reversed(jobs))
    running: dict[Future[list[Row]], Job] = {}
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _end_with_parent) as pool:
        try:
            while True:
                while queue and len(running) < 2 * workers:
                    job = queue.pop()
                    running[pool.submit(_run_job, name, job)] = job
                if not running:
                    return
                for finished in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(finished), finished.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _on_spark(name: str, jobs: list[Job], workers: int) -> Iterator[tuple[Job, list[Row]]]:
    """Run jobs on Spark executors, of a cluster or of this machine. Each job is a Spark job, so none waits for another.

    As many jobs run at a time as the cluster has cores; timed jobs run one at a time.
    """
    if not jobs:
        return
    from trimtab.pipeline.session import open_session

    spark = open_session(f"trimtab lab {name}", config.load().spark)
    context = spark.sparkContext
    pool = ThreadPoolExecutor(1 if workers == 1 else context.defaultParallelism)

    def run_remotely(job: Job) -> tuple[Job, list[Row]]:
        (rows,) = context.parallelize([job], 1).map(partial(_run_job, name)).collect()
        return job, rows

    try:
        for done in as_completed([pool.submit(run_remotely, job) for job in jobs]):
            yield done.result()
    finally:  # stops at once, also after an interrupt
        pool.shutdown(wait=False, cancel_futures=True)
        context.setLogLevel("OFF")  # Spark would report every cancelled task
        context.cancelAllJobs()
        spark.stop()


def _end_with_parent() -> None:
    """Let the worker ignore interrupts, and end it when its parent process ends, even if the parent was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_job(name: str, job: Job) -> list[Row]:
    return find(name).run(job)


def _read_journal(path: Path, name: str) -> dict[str, list[Row]]:
    """Rows of finished jobs by key. An incomplete last line is dropped."""
    if not path.exists():
        return {}
    lines = path.read_text().splitlines(keepends=True)
    complete = [line for line in lines if line.endswith("\n")]
    if len(complete) < len(lines):
        path.write_text("".join(complete))
    entries: list[dict[str, Any]] = []
    for number, line in enumerate(complete, 1):
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            raise BadInput(f"{path}, line {number}: not JSON; move the file away to start anew") from None
    if entries and entries[0].get("experiment") != name:
        other = entries[0].get("experiment")
        raise BadInput(f"{path.parent} holds the results of '{other}', not of '{name}'; choose another --out")
    return {_key(entry["job"]): entry["rows"] for entry in entries[1:]}


def _key(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


def _commit() -> str:
    try:
        command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty", "--exclude=*"]
        process = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return process.stdout.strip()
