"""``trimtab query``: queries the stored data of an application with SQL."""

from __future__ import annotations

from typing import Any

import click

from trimtab.cli import output
from trimtab.cli.fleet import home_of, home_option
from trimtab.fleet import tasks


@click.command()
@click.argument("app", type=click.Path(dir_okay=False))
@click.argument("sql", required=False)
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="Most rows to show.")
@home_option
@output.json_option
def query(app: str, sql: str | None, limit: int, home: str | None, as_json: bool) -> None:
    """Run the query SQL on the stored data of the application of the manifest APP; without SQL, list the tables.

    The tables are its feeds (all stored messages), its datasets, rejects (messages that do not fit a feed's schema, and
    the reason) and results (a row for each row of a channel's results, as JSON). A pipeline may run at the same time.
    """
    from trimtab.config import load as load_config
    from trimtab.fleet.site.credentials import FLEET_FILE, Fleet
    from trimtab.pipeline.hub import reach, server_of
    from trimtab.pipeline.manifest import load
    from trimtab.pipeline.session import open_session
    from trimtab.pipeline.sql.query import parse_select

    manifest, folder = load(app), home_of(home)
    if sql is not None:
        parse_select(sql, "the command")
    fleet = Fleet.load(folder / FLEET_FILE)
    tasks.run(reach(fleet))
    with output.progress(quiet=as_json) as bar:
        task = bar.add_task("starting Spark", total=2)
        spark = open_session("trimtab query", load_config().spark, quiet=True)
        try:
            from trimtab.pipeline import stored

            bar.update(task, description="reading", advance=1)
            names = stored.prepare(spark, server_of(fleet), manifest, folder / "pipeline" / manifest.name)
            columns, rows = stored.ask(spark, sql, limit) if sql else stored.describe(spark, names)
        finally:
            spark.stop()
    if as_json:
        output.print_json([dict(zip(columns, row, strict=True)) for row in rows[:limit]])
        return
    more = f"only the first {limit} rows are shown; --limit shows more" if len(rows) > limit else None
    output.print_table(
        "tables" if sql is None else "",
        columns,
        [[_shown(value) for value in row] for row in rows[:limit]],
        note=more,
        left=range(len(columns)),
    )


def _shown(value: Any) -> str:
    return "" if value is None else str(value)
