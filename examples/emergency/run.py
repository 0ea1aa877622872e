"""A simulated city on the emergency application: people move, report and subscribe. The delay of results is measured.

Start a fleet with the application first, and leave it running:  trimtab up --app examples/emergency/emergency.yaml
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.live import Live

from trimtab.cli import output
from trimtab.cli.fleet import home_of, home_option
from trimtab.errors import BadInput
from trimtab.fleet import tasks
from trimtab.lab import emergency

if TYPE_CHECKING:
    from rich.table import Table

    from trimtab.lab.emergency import ChannelFigures, Outcome

COLUMNS = (
    "channel", "period", "subscriptions", "backend", "executions", "results", "rows", "p50", "p90", "p99", "missing",
    "repeated",
)  # fmt: skip


@click.command()
@click.option("--people", type=click.IntRange(1, 9_999), default=400, show_default=True)
@click.option("--seconds", type=click.FloatRange(1.0, 86_400.0), default=120.0, show_default=True,
              help="Time during which reports are published, without the wait for the last executions.")  # fmt: skip
@output.seed_option
@click.option("--out", default="out/emergency", show_default=True, type=click.Path(file_okay=False, path_type=Path))
@home_option
@output.json_option
def main(people: int, seconds: float, seed: int, out: Path, home: str | None, as_json: bool) -> None:
    """Run a simulated city on the fleet, and print the delay of its notifications."""
    console = Console(stderr=True)
    with Live(console=console, transient=True, auto_refresh=False) as live:

        def report(outcome: Outcome) -> None:
            if not as_json and console.is_terminal:
                live.update(shown(outcome), refresh=True)

        outcome = tasks.run(emergency.run(home_of(home), people=people, seconds=seconds, seed=seed, report=report))
    plot = out / "emergency.png"
    with output.writing(plot):
        emergency.draw(outcome, plot)
    if as_json:
        output.print_json(outcome.as_json() | {"plot": str(plot)})
        return
    note = (
        f"Times are from a report's publication to its delivery. The people share {outcome.clients} clients, and rows "
        "count once for each client.\nMissing rows are counted for channels whose expected rows follow from a "
        f"subscription's parameters alone.\nplot: {plot}"
    )
    output.print_table(
        title(outcome), COLUMNS, [row(name, figures) for name, figures in outcome.channels.items()], note=note
    )


def shown(outcome: Outcome) -> Table:
    return output.table(title(outcome), COLUMNS, [row(name, figures) for name, figures in outcome.channels.items()])


def title(outcome: Outcome) -> str:
    doing = "" if outcome.phase == "done" else f" ({outcome.phase}, {outcome.elapsed_s:.0f} of {outcome.seconds:g} s)"
    return f"{outcome.people} people: {outcome.positions:,} positions and {outcome.reports:,} reports published{doing}"


def row(name: str, figures: ChannelFigures) -> list[str]:
    delays = [figures.quantile_s(share) for share in (0.5, 0.9, 0.99)]
    return [
        name, f"{figures.period_s:g} s", f"{figures.people:,}", f"{figures.backend:,}", f"{len(figures.executions):,}",
        f"{figures.results:,}", f"{figures.rows:,}", *("" if delay is None else f"{delay:.1f} s" for delay in delays),
        "?" if figures.expected is None else f"{figures.missing:,}", f"{figures.repeated:,}",
    ]  # fmt: skip


if __name__ == "__main__":
    try:
        main()
    except BadInput as error:
        print(f"run.py: {error}", file=sys.stderr)
        sys.exit(2)
