"""``trimtab``: finds the command, loads only what it needs, and turns errors into one sentence."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import NoReturn

import click

COMMANDS = {
    "demo": "run a whole system on this machine and balance it",
    "world": "write a generated workload to a folder",
    "plan": "compute a placement of a workload",
    "judge": "compute the figures of any placement",
    "compare": "compare policies on a workload, with a plot",
    "policies": "list the policies and their knobs",
    "up": "start a whole fleet on this machine: hub, brokers, agents",
    "hub": "start the hub of a fleet",
    "broker": "start a broker that joins a fleet",
    "topic": "change a topic: its latency bound",
    "topics": "list topics with their broker, rates and delivery times",
    "clients": "list clients and their homes",
    "brokers": "list brokers and their load",
    "top": "show the fleet live",
    "rtt": "show the round-trip time between two brokers or clients",
    "move": "move a topic, client or link to another broker, live",
    "drain": "cordon a broker and move everything off it",
    "cordon": "exclude a broker from new placements",
    "uncordon": "use a broker for placements again",
    "moves": "list the moves",
    "controller": "keep a running fleet in balance",
    "status": "show the state of the controller",
    "pause": "pause the controller",
    "resume": "resume the controller",
    "rightsize": "say how many brokers the next hour needs, and why",
    "rebalance": "compute a plan now; a dry run, unless --apply",
    "apply": "bring the fleet to a placement file; a dry run, unless --yes",
    "stop": "stop the current plan",
    "rollback": "move back what a plan has moved",
    "decisions": "list the controller's decisions",
    "why": "explain why a topic, client or link was moved, and the effect",
    "add-broker": "add a broker to a running fleet",
    "remove-broker": "move everything off a broker, then remove it",
    "history": "show past traffic by topic, broker or client, on Spark",
    "workload": "write a fleet as a workload folder: its history, or its current state",
    "pipeline": "run the pipeline of an application, on Spark",
    "channel": "show how a channel is executed",
    "channels": "list channels and their parameters",
    "subscribe": "subscribe to a channel and print its results",
    "query": "query the stored data of an application with SQL",
    "train": "train models that predict the latency of topics, on Spark",
    "profile": "measure a broker's machine by load tests, and fit a hardware profile",
    "lab": "run the papers' experiments",
}


class LazyGroup(click.Group):
    """Commands are imported when they are called, so that ``--help`` is instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = name.replace("-", "_")
        command: click.Command = getattr(importlib.import_module(f"trimtab.cli.{module}"), module)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="trimtab")
def trimtab() -> None:
    """Keep a fleet of publish/subscribe brokers in balance: observe, predict, place, migrate.

    Exit codes: 0 success, 1 the answer is "no", 2 bad input.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Entry point. Bad input and an unreachable fleet give a sentence on stderr and exit code 2, never a traceback."""
    from trimtab.errors import BadInput, Unreachable

    signal.signal(signal.SIGTERM, _terminate)
    try:
        code = trimtab.main(args=arguments, prog_name="trimtab", standalone_mode=False)
        sys.stdout.flush()
    except (BadInput, Unreachable) as error:
        click.echo(f"trimtab: {error}", err=True)
        code = 2
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except (KeyboardInterrupt, click.Abort):
        click.echo("trimtab: stopped", err=True)
        code = 130
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


def _terminate(number: int, frame: object) -> NoReturn:
    """End as after an error, so that incomplete files are cleaned up."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
