"""``trimtab``: finds the command, loads only what it needs, and turns errors into one sentence."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from typing import NoReturn

import click

COMMANDS = {
    "demo": "the main job on this machine: see it work",
    "world": "write a made-up workload folder",
    "plan": "decide who is served where",
    "judge": "what any placement does, ours or not",
    "compare": "policies side by side, with a plot",
    "policies": "policies: what they do, and their knobs",
    "up": "a whole fleet on this machine: hub, brokers, agents",
    "hub": "the hub of a fleet alone",
    "broker": "one broker that joins a fleet",
    "topics": "topics: where, how busy, how fast",
    "clients": "clients and their homes",
    "brokers": "brokers and their load",
    "top": "the fleet, live",
    "move": "a topic, client or link to another broker, live",
    "drain": "everything off a broker, which is cordoned then",
    "cordon": "nothing is placed at a broker any more",
    "uncordon": "a broker is used again",
    "moves": "the history of moves",
    "controller": "keeps a running fleet in balance",
    "status": "what the controller does, and what it waits for",
    "pause": "the controller moves nothing by itself",
    "resume": "the controller goes on",
    "rebalance": "a plan now: a dry run, unless --apply",
    "apply": "a placement file carried out: a dry run, unless --yes",
    "stop": "the rest of a plan is not carried out",
    "rollback": "a plan taken back",
    "decisions": "what the controller has decided",
    "why": "why a topic, client or link was moved, and what it brought",
    "add-broker": "one more broker on a running fleet",
    "remove-broker": "everything off a broker, then it ends",
    "history": "what a fleet has carried, by topic, broker or client, on Spark",
    "workload": "a fleet as a workload folder: from its history, or as it is now",
    "pipeline": "the data cluster of an application, on Spark",
    "channel": "how a channel is executed",
    "channels": "channels and their parameters",
    "subscribe": "results of a channel, as they come",
    "query": "SQL over what an application has stored",
    "lab": "the papers' experiments, redrawn",
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
    """Keeps a fleet of publish/subscribe brokers in balance: observe, predict, place, migrate.

    Exit codes: 0 good, 1 the answer is "no", 2 bad input.
    """


def main(arguments: list[str] | None = None) -> NoReturn:
    """Entry point. Bad input and a fleet that does not answer: a sentence on stderr, exit code 2, never a traceback."""
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
    """End as after an error, so that whatever is half written is cleaned up."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
