"""``trimtab demo``: the main job on this machine."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trimtab.cli import output

if TYPE_CHECKING:
    from rich.console import Group

    from trimtab.lab.demo_show import Show

BAR: Final = 30  # characters


@click.command()
@click.option("--fast", is_flag=True, help="In about a minute instead of three, with half as many people.")
@click.option("--out", default="out/demo", show_default=True, type=click.Path(file_okay=False))
@output.seed_option
@output.json_option
def demo(fast: bool, out: str, seed: int, as_json: bool) -> None:
    """A city of five edge brokers, Spark behind them, and hundreds of people; see it being trimmed.

    Most people are in the middle of the city, so one broker has most of the load. The controller is let loose on that;
    then there is a rush in one district; then a broker is killed, and comes back.
    """
    import shutil
    import tempfile

    from rich.console import Console
    from rich.live import Live

    from trimtab.fleet import tasks
    from trimtab.lab import demo as lab
    from trimtab.lab.demo_show import FAST, FULL, draw
    from trimtab.lab.watchdog import Stuck, Watchdog
    from trimtab.pipeline.java import java_home

    java_home()  # before anything is started
    folder = Path(out)
    with output.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    watched = console.is_terminal and not as_json
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-demo-") as home,
        Live(console=console, transient=True, auto_refresh=False) as live,
    ):
        said: list[str] = []

        def report(show: Show) -> None:
            if watched:
                live.update(_screen(show), refresh=True)
            elif not as_json and (not said or said[-1] != show.phase):
                said.append(show.phase)
                click.echo(f"{show.elapsed_s:5.0f} s  {show.phase}", err=True)

        log = folder / "controller.log"

        def keep_logs() -> None:
            log.write_text("".join(path.read_text() for path in sorted(Path(home).glob("fleet/controller-*/log"))))
            for kept, name in (("emergency.yaml", "emergency.yaml"), ("fleet/pipeline/log", "pipeline.log")):
                if (Path(home) / kept).exists():
                    shutil.copy(Path(home) / kept, folder / name)

        say = functools.partial(click.echo, err=True)
        try:
            with Watchdog(say, clean_up_s=lab.CLEAN_UP_S) as watchdog:
                watchdog.before_exit(functools.partial(shutil.rmtree, home, ignore_errors=True))
                watchdog.before_exit(keep_logs)
                show = tasks.run(lab.run(Path(home), FAST if fast else FULL, seed, report, watchdog))
        except Stuck as error:
            raise click.ClickException(str(error)) from None
        finally:  # also if something went wrong
            keep_logs()
    plot = folder / "demo.png"
    draw(show, plot)
    if as_json:
        output.print_json(show.as_json() | {"plot": str(plot), "log": str(log)})
        return
    _print(show)
    click.echo(f"plot: {plot}\nlog:  {log}")


def _print(show: Show) -> None:
    figures = show.as_json()
    rows = [
        (name, f"{each['max_load']:,.0f}", f"{each['spread']:.3f}")
        for name, each in figures["phases"].items()
        if name not in ("subscribing", "warming up", "waiting for the last notifications")
    ]
    output.print_table(
        f"{show.script.clients} people on 5 brokers", ["at the end of", "highest load, bytes/s", "spread"], rows
    )
    came = figures["notifications"]
    again = f"{show.served_again_s:.1f} s" if show.served_again_s is not None else "not within 30 s"
    output.print_table(
        "all in all",
        ["migrations", "delivered", "lost", "doubled", "late", "clients of the killed broker connected again after"],
        [(f"{show.migrations:,}", f"{came['delivered']:,}", f"{came['lost']:,}", f"{came['doubled']:,}",
          f"{came['late']:,}", again)],
        note=f"spread before trimming {figures['before']['spread']:.3f}, after {figures['after']['spread']:.3f}; "
        "late: more than 5 s after it was due",
    )  # fmt: skip


def _screen(show: Show) -> Group:
    from rich.console import Group
    from rich.text import Text

    lines = [Text(f"{show.elapsed_s:4.0f} s  {show.phase}", style="bold")]
    if show.samples:
        last = show.samples[-1]
        most = max([*last.brokers.values(), 1.0])
        rows = [
            (name, "█" * round(BAR * load / most), f"{load:,.0f}", f"{last.homes.get(name, 0)}")
            for name, load in sorted(last.brokers.items())
        ]
        for name in sorted(set(last.homes) - set(last.brokers)):
            rows.append((name, "away", "", f"{last.homes[name]}"))
        note = f"spread {last.spread:.3f}; {show.migrations} migrations; {show.delivered:,} notifications delivered"
        table = output.table("brokers", ["", "load", "bytes/s", "people"], rows, left=range(2))
        return Group(*lines, table, Text(note), Text(last.says, style="dim"))
    return Group(*lines)
