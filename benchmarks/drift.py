"""The drift alarm on a real broker: quiet for ten minutes, then one processor becomes 50 % slower.

The broker, its agent, its processors and its clients are real; the measurements are made here of the agent's reports,
as the pipeline does on Spark, because Spark would use the cores that the test is about.

    python -m benchmarks.drift PROFILE [--quiet-minutes 10] [--json]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np

from trimtab.control.drift import WINDOW_S
from trimtab.control.loop import Loop
from trimtab.control.model_file import read_model
from trimtab.control.settings import Settings
from trimtab.control.view import View
from trimtab.fleet import tasks
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.sdk.client import connect
from trimtab.fleet.site.launch import Launch
from trimtab.model.ids import Ids
from trimtab.model.key import Key, RoutingTable
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.observe.report import BrokerReport, TopicReport
from trimtab.observe.snapshot import Snapshot, Usage
from trimtab.predict.drift import Settings as Alarm

TOPICS = {"a": (10, 20.0), "b": (14, 12.0), "c": (8, 15.0)}  # messages/s, CPU time in ms
SLOWER, OF = 1.5, "a"
RUNG_WITHIN = 10  # windows

PROCESSOR = """
from pathlib import Path
from trimtab.fleet.broker.processing.burn import burn

def work(message, spool, *, ms, factor):
    return burn(message, spool, ms=ms * float(Path(factor).read_text()))
"""


def view_of(reports: list[BrokerReport], at: float, seconds: float) -> View:
    """What the pipeline's measurement of these reports would be."""
    total = {name: TopicReport() for name in TOPICS}
    for report in reports:
        for name in TOPICS:
            total[name].add(report.topics.get(name, TopicReport()))
    count, rows = len(TOPICS), np.arange(len(TOPICS))
    links = Links(
        np.concatenate([rows, rows]), np.concatenate([rows, count + rows]), np.repeat([PUB, SUB], count).astype(np.int8)
    )
    processing = [1000.0 * each.busy_s / max(each.processed, 1) for each in total.values()]
    topics = Topics(
        Ids(list(TOPICS)), np.array([each.in_msgs / seconds for each in total.values()]), np.full(count, 100.0),
        processing_ms=np.array(processing),
    )  # fmt: skip
    workload = Workload(topics, Clients(Ids.numbered("c", 2 * count)), Brokers(Ids(["b1"])), links)
    p90 = np.array([1000.0 * each.latency.percentile(0.9) for each in total.values()])
    keys = {Key("client", "", f"c{row}"): "b1" for row in range(2 * count)}
    keys |= {Key("topic", name, ""): "b1" for name in TOPICS}
    snapshot = Snapshot(at, workload, {"b1": Usage(1.0)}, p90_ms=p90)
    return View.of(snapshot, RoutingTable(dict.fromkeys(TOPICS, "topic"), keys), ["b1"])


async def publish(client, topic: str) -> None:
    """Publishers of one message a second each, at intervals that drift."""
    rate, draw = TOPICS[topic][0], random.Random(topic)

    async def one() -> None:
        await asyncio.sleep(draw.random())
        while True:
            await client.publish(topic, b"x" * 100)
            await asyncio.sleep(max(draw.gauss(1.0, 0.1), 0.0))

    await asyncio.gather(*(one() for _ in range(rate)))


async def run(model: dict, quiet_minutes: float) -> dict:
    loop, reports, rows = Loop(Settings(model=model, alpha=10.0, gather=0.0)), [], []
    settle = Alarm().settle
    quiet = settle + round(60.0 * quiet_minutes / WINDOW_S)
    async with contextlib.AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-drift-")))
        (home / "slowable.py").write_text(PROCESSOR)
        (home / "factor").write_text("1.0")
        (home / "one").write_text("1.0")
        sys.path.append(str(home))
        launch = await stack.enter_async_context(Launch(home / "fleet"))
        await launch.start_hub()
        await launch.start_broker("b1")
        await launch.ready(["b1"])
        client = await stack.enter_async_context(connect(home / "fleet", name="clients", home="b1"))

        async def on_report(raw) -> None:
            reports.append(coding.decode(raw.data, BrokerReport))

        await (await launch.admin()).subscribe(subjects.telemetry(subjects.ANY), cb=on_report)
        for name, (_, ms) in TOPICS.items():
            file = home / ("factor" if name == OF else "one")
            await client.create_topic(name, processor=f"slowable:work?ms={ms:g}&factor={file}")
            await client.subscribe(name, lambda _: None)
        publishing = [asyncio.create_task(publish(client, name)) for name in TOPICS]
        await asyncio.sleep(5.0)
        rang = None
        for number in range(quiet + RUNG_WITHIN):
            if number == quiet:
                (home / "factor").write_text(str(SLOWER))
            reports.clear()
            began = time.monotonic()
            await asyncio.sleep(WINDOW_S)
            view = view_of(list(reports), time.time(), time.monotonic() - began)
            loop.step(view.at, view)
            findings = [str(finding) for finding in loop.findings]
            p90 = [round(value, 1) for value in view.snapshot.p90_ms.tolist()]
            rows.append({"window": number, "slower": number >= quiet, "p90_ms": p90, "findings": findings})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
            if findings and number >= quiet:
                rang = number - quiet + 1
                break
        await tasks.end(*publishing)
    false = sum(bool(row["findings"]) for row in rows if not row["slower"])
    return {"quiet_minutes": quiet_minutes, "false_alarms": false, "rang_after_windows": rang,
            "rang_after_s": None if rang is None else rang * WINDOW_S, "said": rows[-1]["findings"]}  # fmt: skip


@click.command()
@click.argument("profile", type=click.Path(exists=True))
@click.option("--quiet-minutes", type=float, default=10.0, show_default=True)
@click.option("--json", "as_json", is_flag=True)
def main(profile: str, quiet_minutes: float, as_json: bool) -> None:
    found = tasks.run(run(read_model(Path(profile)), quiet_minutes))
    if as_json:
        click.echo(json.dumps(found, indent=2))
    else:
        rang = f"rang after {found['rang_after_s']} s: {'; '.join(found['said'])}"
        click.echo(f"{found['quiet_minutes']:g} quiet minutes: {found['false_alarms']} false alarms")
        click.echo(f"a processor {SLOWER:g} times as slow: {rang}")
    if found["false_alarms"] or found["rang_after_s"] is None:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
