"""``trimtab controller``: keeps a running fleet in balance."""

from __future__ import annotations

from dataclasses import asdict, replace

import click

from trimtab.cli.fleet import home_of, home_option
from trimtab.cli.numbers import Number


@click.command()
@click.option("--policy", help="Policy of the family client [default: [control] of trimtab.toml, else trim].")
@click.option("--period", type=Number(min=0.5), metavar="S", help="Seconds between checks [default: 5].")
@click.option("--paused", is_flag=True, help="Start paused: report findings, but move nothing until trimtab resume.")
@home_option
def controller(policy: str | None, period: float | None, paused: bool, home: str | None) -> None:
    """Watch the fleet of --home and move topics, clients and links when it is out of balance, until Ctrl-C.

    It uses the measurements of the pipeline (trimtab pipeline). A second controller is a standby and takes over if the
    first one ends. The settings are under [control] of trimtab.toml.
    """
    from trimtab.config import load
    from trimtab.control.process import run
    from trimtab.fleet.site.processes import ControllerProcess

    settings = load().control
    settings = replace(settings, policy=policy or settings.policy, period_s=period or settings.period_s)
    run(ControllerProcess(str(home_of(home)), asdict(settings), paused))
