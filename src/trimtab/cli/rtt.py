"""``trimtab rtt``: the round-trip time between two brokers or clients."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.fleet.protocol import coding

if TYPE_CHECKING:
    from trimtab.fleet.operator.rtt import Rtt


@click.command()
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@home_option
@output.json_option
def rtt(one: str, other: str, home: str | None, as_json: bool) -> None:
    """The round-trip time between A and B, each a broker or a client.

    It is estimated by their network coordinates. If one of them has measured it, the measured time and the error of the
    estimate are shown, too. Exit code 1 if there is no estimate yet.
    """
    found = with_operator(home, lambda operator: operator.rtt(one, other))
    if as_json:
        output.print_json(coding.plain(found))
    else:
        _show(found)
    sys.exit(1 if found.estimated_ms is None else 0)


def _show(found: Rtt) -> None:
    rows = [(name, _ms(value)) for name, value in (("estimated", found.estimated_ms), ("measured", found.measured_ms))]
    if found.error is not None:
        rows.append(("error of the estimate", f"{100 * found.error:+.1f} %"))
    notes = [
        f"{node.name} reaches the network by way of {node.gateway}, {node.access_ms:.1f} ms away"
        for node in found.nodes
        if node.kind == "client" and node.gateway is not None
    ]
    one, other = (node.name for node in found.nodes)
    note = "\n".join([*notes, *([f"no estimate: {found.reason}"] if found.reason else [])])
    output.print_table(f"round-trip time between {one} and {other}", ["", "time"], rows, note=note or None)


def _ms(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.1f} ms"
