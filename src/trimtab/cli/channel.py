"""``trimtab channel``: shows how a channel is executed."""

from __future__ import annotations

import click

from trimtab.cli import output


@click.group()
def channel() -> None:
    """Show how a channel is executed."""


@channel.command()
@click.argument("app", type=click.Path(dir_okay=False))
@click.argument("name")
@output.json_option
def explain(app: str, name: str, as_json: bool) -> None:
    """Show the query that serves all subscriptions of channel NAME of the manifest APP, and Spark's plan for it."""
    from trimtab.config import load as load_config
    from trimtab.errors import UnknownName
    from trimtab.pipeline.manifest import load
    from trimtab.pipeline.plan import check_plans, compile_channels, explain
    from trimtab.pipeline.session import open_session

    manifest = load(app)
    plans = compile_channels(manifest)
    if name not in plans:
        raise UnknownName("channel", name, sorted(plans))
    plan = plans[name]
    with output.progress(quiet=as_json) as bar:
        task = bar.add_task("starting Spark", total=1)
        spark = open_session("trimtab explain", load_config().spark, quiet=True)
        bar.advance(task)
    try:
        check_plans(spark, manifest, [plan])
        physical = explain(spark, manifest, plan)
    finally:
        spark.stop()
    indexed = plan.indexed.sql if plan.indexed else ""
    if as_json:
        output.print_json({
            "channel": name, "parameters": plan.channel.parameters, "period_s": plan.channel.period_s,
            "shared": plan.plain, "indexed": indexed,
            "indexes": [{"name": index.name, "on": index.kind, "sql": index.sql} for index in plan.indexes],
            "plan": physical,
        })  # fmt: skip
        return
    click.echo(f"-- shared by all subscriptions\n{plan.plain}\n")
    for index in plan.indexes:
        click.echo(f"-- {index.name}: {index.kind}\n{index.sql}\n")
    if indexed:
        click.echo(f"-- the same with indexes, used when there are many pairs to compare\n{indexed}\n")
    click.echo(f"-- Spark's plan\n{physical}")
