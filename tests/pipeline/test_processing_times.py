"""The CPU time per message of real processors, from a worker's answer to the workloads made of a live fleet."""

from __future__ import annotations

import asyncio
import time

import pytest

from trimtab.control.fleet_view import live_workload
from trimtab.fleet import tasks
from trimtab.fleet.operator import Operator
from trimtab.fleet.sdk.client import connect
from trimtab.model.folder import read_workload
from trimtab.pipeline import history
from trimtab.pipeline.hub import server_of
from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.nats.source import NatsSource
from trimtab.pipeline.observer import Observer

pytestmark = pytest.mark.timeout(240)

FAILS = """
from trimtab.fleet.broker.processing.burn import burn

def fails(message, spool, *, ms):
    burn(message, spool, ms=ms)
    raise ValueError("always")
"""
PROCESSORS = {"busy.a": ("burn?ms=6", 6.0), "busy.b": ("failing_burn:fails?ms=3", 3.0), "plain": ("", 0.0)}


def test_a_workload_of_a_live_fleet_has_the_cpu_time_of_every_processor(fleet, spark, modules, tmp_path):
    """Also of a processor that fails on every message: its broker spends the time all the same."""
    (modules / "failing_burn.py").write_text(FAILS)
    spark.dataSource.register(NatsSource)
    server = server_of(fleet.launch.fleet)
    observer = Observer(spark, server, tmp_path / "history")

    async def publish(client, seconds):
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for topic in PROCESSORS:
                await client.publish(topic, b"x" * 100)
            await asyncio.sleep(0.05)

    async def run():
        async with connect(fleet.home, name="busy", home="b1") as client, Operator.open(fleet.home) as operator:
            for topic, (processor, _) in PROCESSORS.items():
                await client.create_topic(topic, processor=processor, broker="b2")
                await client.subscribe(topic, lambda _: None)
            with JetStream(server) as jetstream:
                publishing = asyncio.create_task(publish(client, 60.0))
                await asyncio.to_thread(observer.measure, jetstream)
                await asyncio.sleep(4.0)
                await asyncio.to_thread(observer.measure, jetstream)
                rows = {row.topic: row for row in await operator.topics()}
                publishing.cancel()
                await asyncio.to_thread(observer.store)
            snapshot = await operator.snapshot()
            for topic in PROCESSORS:
                await client.delete_topic(topic)
            return live_workload(snapshot, await operator.state())[0], rows

    live, rows = tasks.run(run())

    history.write_workload(spark, tmp_path / "history", tmp_path / "workload")
    stored = read_workload(tmp_path / "workload")
    for workload in (live, stored):
        measured = dict(zip(workload.topics.ids, workload.topics.processing_ms, strict=True))
        for topic, (_, ms) in PROCESSORS.items():
            assert ms <= measured[topic] <= 1.5 * ms + 0.5 * bool(ms), topic
    assert rows["busy.a"].processing_ms == pytest.approx(6.3, abs=1.0)
