"""``trimtab controller``: keeps a running fleet in balance."""

from __future__ import annotations

from dataclasses import asdict, replace

import click

from trimtab.cli.fleet import home_of, home_option


@click.command()
@click.option("--policy", help="Of the family client [default: [control] of trimtab.toml, else trim].")
@click.option("--period", type=click.FloatRange(min=0.5), metavar="S", help="Seconds between looks [default: 5].")
@click.option("--paused", is_flag=True, help="Only look and say, until trimtab resume; unless it was paused already.")
@home_option
def controller(policy: str | None, period: float | None, paused: bool, home: str | None) -> None:
    """Watch the fleet of --home and move topics, clients and links when it is out of balance, until Ctrl-C.

    It plans on what the pipeline measures (trimtab pipeline). A second one stands by, and takes over should the first
    one be gone. Its settings are under [control] of trimtab.toml.
    """
    from trimtab.config import load
    from trimtab.control.process import run
    from trimtab.fleet.site.processes import ControllerProcess

    settings = load().control
    settings = replace(settings, policy=policy or settings.policy, period_s=period or settings.period_s)
    run(ControllerProcess(str(home_of(home)), asdict(settings), paused))
