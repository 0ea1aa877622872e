"""``trimtab demo``: a whole system on this machine, balanced while it runs."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from trimtab.cli import output

if TYPE_CHECKING:
    from rich.console import Group

    from trimtab.lab.demo_progress import Progress

BAR: Final = 30  # characters


@click.command()
@click.option("--fast", is_flag=True, help="In about a minute instead of three, with half as many people.")
@click.option("--out", default="out/demo", show_default=True, type=click.Path(file_okay=False))
@output.seed_option
@output.json_option
def demo(fast: bool, out: str, seed: int, as_json: bool) -> None:
    """Balance a simulated city on this machine: five edge brokers, a Spark pipeline and hundreds of people.

    Most people are in the middle of the city, so one broker has most of the load. First the controller levels the load.
    Then one district has a rush of reports. Then a broker is killed and started again.
    """
    import shutil
    import tempfile

    from rich.console import Console
    from rich.live import Live

    from trimtab.fleet import tasks
    from trimtab.lab import demo as lab
    from trimtab.lab.demo_progress import FAST, FULL, draw
    from trimtab.lab.watchdog import Stuck, Watchdog
    from trimtab.pipeline.java import java_home

    java_home()  # fails here, before any process is started, if there is no Java
    folder = Path(out)
    with output.writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True)
    watched = console.is_terminal and not as_json
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-demo-") as home,
        Live(console=console, transient=True, auto_refresh=False) as live,
    ):
        phases: list[str] = []

        def report(progress: Progress) -> None:
            if watched:
                live.update(_screen(progress), refresh=True)
            elif not as_json and (not phases or phases[-1] != progress.phase):
                phases.append(progress.phase)
                click.echo(f"{progress.elapsed_s:5.0f} s  {progress.phase}", err=True)

        log = folder / "controller.log"

        def keep_logs() -> None:
            log.write_text("".join(path.read_text() for path in sorted(Path(home).glob("fleet/controller-*/log"))))
            for file, name in (("emergency.yaml", "emergency.yaml"), ("fleet/pipeline/log", "pipeline.log")):
                if (Path(home) / file).exists():
                    shutil.copy(Path(home) / file, folder / name)

        say = functools.partial(click.echo, err=True)
        try:
            with Watchdog(say, clean_up_s=lab.CLEAN_UP_S) as watchdog:
                watchdog.before_exit(functools.partial(shutil.rmtree, home, ignore_errors=True))
                watchdog.before_exit(keep_logs)
                progress = tasks.run(lab.run(Path(home), FAST if fast else FULL, seed, report, watchdog))
        except Stuck as error:
            raise click.ClickException(str(error)) from None
        finally:  # also after an error
            keep_logs()
    plot = folder / "demo.png"
    draw(progress, plot)
    if as_json:
        output.print_json(progress.as_json() | {"plot": str(plot), "log": str(log)})
        return
    _print(progress)
    click.echo(f"plot: {plot}\nlog:  {log}")


def _print(progress: Progress) -> None:
    figures = progress.as_json()
    rows = [
        (name, f"{level['max_load']:,.0f}", f"{level['spread']:.3f}")
        for name, level in figures["phases"].items()
        if name not in ("subscribing", "warming up", "waiting for the last notifications")
    ]
    output.print_table(
        f"{progress.script.clients} people on 5 brokers", ["at the end of", "highest load, bytes/s", "spread"], rows
    )
    counts = figures["notifications"]
    again = f"{progress.served_again_s:.1f} s" if progress.served_again_s is not None else "not within 30 s"
    output.print_table(
        "totals",
        ["migrations", "delivered", "lost", "doubled", "late", "clients of the killed broker connected again after"],
        [(f"{progress.migrations:,}", f"{counts['delivered']:,}", f"{counts['lost']:,}", f"{counts['doubled']:,}",
          f"{counts['late']:,}", again)],
        note=f"spread before trimming {figures['before']['spread']:.3f}, after {figures['after']['spread']:.3f}; "
        "late: more than 5 s after it was due",
    )  # fmt: skip


def _screen(progress: Progress) -> Group:
    from rich.console import Group
    from rich.text import Text

    lines = [Text(f"{progress.elapsed_s:4.0f} s  {progress.phase}", style="bold")]
    if progress.samples:
        last = progress.samples[-1]
        most = max([*last.brokers.values(), 1.0])
        rows = [
            (name, "█" * round(BAR * load / most), f"{load:,.0f}", f"{last.homes.get(name, 0)}")
            for name, load in sorted(last.brokers.items())
        ]
        for name in sorted(set(last.homes) - set(last.brokers)):
            rows.append((name, "away", "", f"{last.homes[name]}"))
        counts = f"{progress.migrations} migrations; {progress.delivered:,} notifications delivered"
        note = f"spread {last.spread:.3f}; {counts}"
        table = output.table("brokers", ["", "load", "bytes/s", "people"], rows, left=range(2))
        return Group(*lines, table, Text(note), Text(last.status, style="dim"))
    return Group(*lines)
