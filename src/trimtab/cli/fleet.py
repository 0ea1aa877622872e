"""Common parts of the commands that connect to a running fleet."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from trimtab.cli import output
from trimtab.fleet import tasks
from trimtab.fleet.operator import Operator
from trimtab.fleet.sdk.client_file import DEFAULT_HOME, HOME_VARIABLE, fleet_home

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    T = TypeVar("T")

home_option = click.option(
    "--home",
    type=click.Path(file_okay=False),
    help=f"The fleet's folder [default: ${HOME_VARIABLE}, else {DEFAULT_HOME}].",
)
reason_option = click.option("--reason", default="", help="Reason, for the record.")


def home_of(home: str | None) -> Path:
    return Path(home) if home else fleet_home()


def with_operator(home: str | None, work: Callable[[Operator], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` on the fleet in ``home``."""

    async def run() -> T:
        async with Operator.open(home_of(home)) as operator:
            return await work(operator)

    return tasks.run(run())


@contextmanager
def steps_bar(description: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A progress bar for steps that an operator follows."""
    with output.progress(quiet=quiet) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
