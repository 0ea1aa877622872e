"""Common options and output of the commands: tables for people, JSON for machines."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from trimtab.cli.numbers import Number
from trimtab.errors import BadInput
from trimtab.model.folder import read_workload
from trimtab.model.hardware import PAPER
from trimtab.model.placement_file import read_placement
from trimtab.model.problem import ONE_WAY, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.progress import Progress
    from rich.table import Table

    from trimtab.model.hardware import Hardware
    from trimtab.model.judgement import Delay, Judgement, Latency, NetworkLatency
    from trimtab.model.placement import Bound, Unit

WRAPPED: Final = 40  # characters of a column that may be wrapped

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for machines instead of a table.")
seed_option = click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all random draws."
)

current_option = click.option(
    "--current", type=click.Path(), metavar="PLACEMENT", help="Current placement, so that policies can limit moves."
)

leg_option = click.option(
    "--leg", type=Number(min=0.0, max=1.0, min_open=True), default=ONE_WAY, show_default=True,
    metavar="SHARE", help="Network latency of one leg of a delivery, as a share of the round-trip time: 0.5 is one "
    "way, 1 the reading of ePulsar's paper.",
)  # fmt: skip


def print_json(answer: Any) -> None:
    click.echo(json.dumps(answer, indent=2, allow_nan=False))


def table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[int] = (0,),
    wrap: Sequence[int] = (),
) -> Table:  # fmt: skip
    """A table. Columns ``left`` are text, the others numbers; columns ``wrap`` are wrapped where space is short."""
    from rich.table import Table
    from rich.text import Text

    result = Table(title=Text(title, style="bold") if title else None, title_justify="left")
    for place, column in enumerate(columns):
        result.add_column(column, justify="left" if place in left else "right", no_wrap=place not in wrap)
    for row in rows:
        result.add_row(*(Text(cell) for cell in row))
    return result


def _width(place: int, column: str, rows: Sequence[Sequence[str]], wrap: Sequence[int]) -> int:
    """The least width at which a column can be read."""
    longest = max(
        (len(line) for cell in [column, *(row[place] for row in rows)] for line in cell.splitlines()), default=0
    )
    return min(longest, WRAPPED) if place in wrap else longest


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, note: str | None = None,
    left: Sequence[int] = (0,), wrap: Sequence[int] = (),
) -> None:  # fmt: skip
    from rich.console import Console
    from rich.text import Text

    # Nothing is cut: a row that is wider than the terminal goes on in the next line.
    least = sum(_width(place, column, rows, wrap) + 3 for place, column in enumerate(columns)) + 1
    screen = Console().size.width if sys.stdout.isatty() else 160
    console = Console(width=max(least, screen), highlight=False)
    if title:  # printed above the table, since a title of the table would be wrapped at the table's width
        console.print(Text(title, style="bold"), soft_wrap=True)
    console.print(table("", columns, rows, left=left, wrap=wrap))
    if note:
        console.print(note, markup=False, soft_wrap=True)


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """A progress bar on stderr that disappears at the end."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=quiet or not sys.stderr.isatty()
    ) as bar:
        yield bar


def number(value: float) -> str:
    """A short, readable form of a number."""
    if value == 0 or 0.01 <= abs(value) < 1e15:
        return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:,.4g}"
    return f"{value:.3g}"


def seconds(value: float) -> str:
    if value < 1e-3:
        return f"{value * 1e6:,.1f} µs"
    return f"{value * 1e3:,.2f} ms" if value < 1.0 else f"{value:,.2f} s"


def percent(share: float, digits: int = 2) -> str:
    """A share as a percentage; 100 % only for a share of exactly 1."""
    text = f"{100 * share:.{digits}f} %"
    return f"> {100 - 10**-digits:.{digits}f} %" if share < 1.0 and text.startswith("100") else text


def judgement_rows(judgement: Judgement) -> list[tuple[str, str]]:
    """The judge's figures for a two-column table."""
    load, moves, delay = judgement.load, judgement.moves, judgement.delay
    return [
        ("data received", f"{number(judgement.received)} of {number(judgement.offered)}"),
        ("", percent(judgement.received_share)),
        ("units placed", f"{judgement.placed:,}"),
        ("units unplaced", f"{judgement.unplaced:,}"),
        ("brokers used", f"{judgement.brokers_used:,} of {len(load.per_broker):,}"),
        ("load, maximum", number(load.max)),
        ("load, mean", number(load.mean)),
        ("load, total", number(load.total)),
        ("load, coefficient of variation", f"{load.cov:.4f}"),
        ("on the wire, maximum", number(judgement.wire.max)),
        ("on the wire, coefficient of variation", f"{judgement.wire.cov:.4f}"),
        *([("units that move", f"{moves.units:,}"), ("at least", f"{moves.least:,}")] if moves else []),
        *_delay_rows(delay),
        *_latency_rows(judgement.latency),
        *_network_rows(judgement.network),
        *_promise_rows(judgement),
        ("violations", f"{len(judgement.violations):,}"),
    ]


def _delay_rows(delay: Delay | None) -> list[tuple[str, str]]:
    if delay is None:
        return []
    return [
        ("delay, mean", f"{delay.mean_ms:.3f} ms"),
        ("between clients and homes", f"{delay.near_ms:.3f} ms"),
        ("between homes, or by the cloud", f"{delay.far_ms:.3f} ms"),
        ("least share of processing kept", percent(float(delay.kept.min(initial=1.0)), 1)),
        ("storage, most in use", number(float(delay.storage.max(initial=0.0)))),
        ("compute, most in use", number(float(delay.compute.max(initial=0.0)))),
    ]


def out_of_bound(judgement: Judgement) -> int:
    """Topics whose p90 is above their bound in the judge's simulation."""
    return judgement.latency.topics_out_of_bound if judgement.latency else 0


def print_out_of_bound(judgement: Judgement) -> None:
    """Say that the placement does not keep every bound, whatever the model predicted that made it."""
    count = out_of_bound(judgement)
    if count:
        click.echo(f"{count:,} topic{'' if count == 1 else 's'} out of bound in the simulation")


def _latency_rows(latency: Latency | None) -> list[tuple[str, str]]:
    if latency is None:
        return []
    p90 = latency.p90_ms[~np.isnan(latency.p90_ms)]
    bounded = int(np.count_nonzero(~np.isnan(latency.bound_ms)))
    rows = [
        ("topics out of bound", f"{latency.topics_out_of_bound:,} of {bounded:,}"),
        ("messages out of bound", percent(latency.messages_out_of_bound)),
    ]
    if len(p90):
        rows.append(("p90 latency, median topic", f"{np.median(p90):,.0f} ms"))
        rows.append(("p90 latency, slowest topic", f"{p90.max():,.0f} ms"))
    busy = latency.cpu[latency.cpu > 0.0]
    if len(busy):
        rows.append(("CPU in use, mean of used brokers", percent(float(busy.mean()), 1)))
    return rows


def _network_rows(network: NetworkLatency | None) -> list[tuple[str, str]]:
    if network is None:
        return []
    bounded = int(np.count_nonzero(~np.isnan(network.bound_ms)))
    rows = [
        (f"network latency ({network.source}), worst pair", milliseconds(network.worst)),
        ("network latency, mean of the topics' worst pairs", milliseconds(network.mean_ms)),
        ("topics out of bound by the network", f"{network.topics_out_of_bound:,} of {bounded:,}"),
        ("pairs out of bound", f"{network.violating_pairs:,} of {int(network.pairs.sum()):,}"),
        ("", percent(network.violation_ratio)),
    ]
    if network.unknown:
        rows.append(("links of clients with unknown latency", f"{network.unknown:,}"))
    return rows


def _promise_rows(judgement: Judgement) -> list[tuple[str, str]]:
    broken = judgement.promises_broken
    return [] if broken is None else [("topics out of bound by network and processing together", f"{broken:,}")]


def milliseconds(value: float) -> str:
    """Up to one decimal; a dash where there is no value."""
    return f"{value:,.1f} ms" if np.isfinite(value) else ("-" if np.isnan(value) else "unknown")


def distance(value: float, bound: Bound) -> str:
    """How far a figure is from a bound, in words."""
    if bound.proves(value):
        return "optimal"
    if bound.figure == "violating_pairs":
        return f"+{value - bound.value:,.0f} pairs"
    return percent(bound.gap(value), 3)


def print_violations(judgement: Judgement, most: int = 5) -> None:
    for violation in judgement.violations[:most]:
        click.echo(f"  {violation}")
    if len(judgement.violations) > most:
        click.echo(f"  ... and {len(judgement.violations) - most:,} more")


def plot_path(_: click.Context, __: click.Parameter, value: str | None) -> Path | None:
    """Check the path of a plot before anything is computed."""
    if value is None:
        return None
    path = Path(value)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise click.BadParameter(f"'{value}' must end in .png, .svg or .pdf")
    return path


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn errors of the file system into ``BadInput``."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None


def problem_of(
    workload: str, unit: Unit, current: str | None, hardware: Hardware = PAPER, leg: float = ONE_WAY
) -> Problem:  # fmt: skip
    """The problem of a workload folder, with the current placement if a placement file is given."""
    load = read_workload(workload)
    if current is None:
        return Problem(load, unit, hardware=hardware, leg=leg)
    current_problem, placement = read_placement(load, current, unit)
    if current_problem.unit != unit:
        raise BadInput(f"{current} places {current_problem.unit}s, but the question is about {unit}s")
    return Problem(load, unit, placement, hardware=hardware, leg=leg)


def named_policy(family: str | None, policy: str) -> str:
    """``family/name`` of the options ``--family link --policy trim`` or ``--policy link/trim``."""
    from trimtab.place.registry import FAMILIES, full_name, policy_class

    if "/" in policy:
        policy_family = policy.split("/")[0]
        if family not in (None, policy_family):
            raise BadInput(f"policy '{policy}' is not of family '{family}'; leave --family out or name a policy of it")
    elif family is None:
        raise BadInput(f"policy '{policy}' needs its family: --family one of {', '.join(FAMILIES)}, or FAMILY/{policy}")
    name = full_name(policy, family or "")
    policy_class(name)
    return name
