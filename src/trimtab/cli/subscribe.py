"""``trimtab subscribe``: subscribes to a channel and prints its results."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_of, home_option, with_operator
from trimtab.fleet import tasks

if TYPE_CHECKING:
    from pathlib import Path


@click.command()
@click.argument("channel")
@click.option("--param", "-p", "params", multiple=True, metavar="NAME=VALUE", help="A parameter; repeatable.")
@click.option("--name", help="Subscriber's name; after a restart it gets the results missed [default: a new name].")
@click.option("--count", type=click.IntRange(min=1), help="Stop after this number of results [default: at Ctrl-C].")
@click.option("--end", is_flag=True, help="Unsubscribe at the end, so that no results are kept.")
@home_option
@output.json_option
def subscribe(
    channel: str, params: tuple[str, ...], name: str | None, count: int | None, end: bool, home: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Subscribe to CHANNEL with these parameters and print its results."""
    from trimtab.errors import BadInput, UnknownName
    from trimtab.fleet.protocol.types import parse_text

    rows = {row.channel: row for row in with_operator(home, lambda operator: operator.channels())}
    if channel not in rows:
        raise UnknownName("channel", channel, sorted(rows))
    types = rows[channel].parameters
    values = {}
    for param in params:
        key, equals, text = param.partition("=")
        if not equals:
            raise BadInput(f"--param {param!r} must be NAME=VALUE")
        if key not in types:
            raise UnknownName(f"parameter of channel '{channel}'", key, sorted(types))
        values[key] = parse_text(types[key], text, f"parameter '{key}'")
    tasks.run(_subscribe(home_of(home), channel, values, name, count, end, as_json))


async def _subscribe(
    home: Path, channel: str, params: dict[str, Any], name: str | None, count: int | None, end: bool, as_json: bool
) -> None:
    from trimtab.fleet.sdk.client import connect

    async with connect(home, name=name) as client:
        subscription = await client.subscribe_channel(channel, **params)
        if not as_json:
            click.echo(f"subscribed to '{channel}' as '{client.name}'; stop with Ctrl-C", err=True)
        count_so_far = 0
        async for result in subscription:
            if as_json:
                fields = {"channel": channel, "execution": result.execution, "at": result.at, "rows": result.rows}
                fields |= {"part": result.part, "parts": result.parts}
                fields |= {"left_out": result.left_out, "reason": result.reason}
                click.echo(json.dumps(fields, ensure_ascii=False))
            else:
                part = f" part {result.part} of {result.parts}" if result.parts > 1 else ""
                head = f"{result.at} #{result.execution}{part}"
                for row in result.rows:
                    click.echo(f"{head}  " + "  ".join(f"{k}={v}" for k, v in row.items()))
                if result.left_out:
                    click.echo(f"{head}  {result.left_out:,} rows left out: {result.reason}")
            sys.stdout.flush()
            count_so_far += 1
            if count is not None and count_so_far >= count:
                break
        if end:
            await client.unsubscribe_channel(subscription)
