"""``trimtab topic``: changes a topic of a running fleet."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_option, with_operator
from trimtab.errors import BadInput

if TYPE_CHECKING:
    from trimtab.fleet.operator import Operator

_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s)", re.IGNORECASE)
_MS: Final = {"ms": 1.0, "s": 1000.0}


def bound_ms(text: str) -> float | None:
    """Milliseconds of a duration such as ``200ms`` or ``1.5s``; None for ``none``."""
    if text.strip().lower() == "none":
        return None
    match = _DURATION.fullmatch(text.strip())
    if match is None or not float(match[1]) > 0.0:
        raise BadInput(f"--latency is a duration above zero such as 200ms or 1.5s, or none, but this came: '{text}'")
    return float(match[1]) * _MS[match[2].lower()]


@click.group()
def topic() -> None:
    """Change a topic of a running fleet."""


@topic.command("set")
@click.argument("name")
@click.option("--latency", required=True, metavar="DURATION",
              help="Bound of the p90 of delivery times, such as 200ms or 1s; none removes it.")  # fmt: skip
@home_option
@output.json_option
def set_topic(name: str, latency: str, home: str | None, as_json: bool) -> None:
    """Set the latency bound of topic NAME.

    Latencies of processing and of the network are predicted, and kept by moves. Of a topic with neither a processor nor
    clients with a known position, a miss is only shown.
    """
    bound = bound_ms(latency)

    async def work(operator: Operator) -> bool:
        await operator.set_topic(name, bound)
        return bool((await operator.state()).topics[name].processor)

    processed = with_operator(home, work)
    if as_json:
        output.print_json({"topic": name, "latency_ms": bound, "predicted": processed})
        return
    click.echo(f"topic {name} has no latency bound" if bound is None else f"topic {name}: p90 at most {bound:g} ms")
    if bound is not None and not processed:
        click.echo("it has no processor: it follows clients that are too far from its broker, and trimtab status shows "
                   "a measured p90 above the bound")  # fmt: skip
