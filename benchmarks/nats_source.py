"""The rate at which stored messages become rows: with the socket client, Spark's data source, and nats-py as baseline.

All take turns on one server, so that a busy machine disturbs all of them. The results are the ratios.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import nats
from nats.js.api import AckPolicy, ConsumerConfig

from trimtab.cli.output import print_table
from trimtab.fleet.site.server import find_nats_server, free_ports
from trimtab.pipeline.nats import jetstream
from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.nats.wire import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 200_000
BY_NATS_PY = 20_000
SIZE = 500
ROUNDS = 5
HOST = "127.0.0.1"
STREAM = "BENCH"
REPORT = "id long, kind string, lat double, lon double, note string"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)) as (server, process):
        asyncio.run(_create(server))
        with JetStream(server) as client:
            client.publish((f"{STREAM}.{number % 50}", _data(number), f"bench-{number}") for number in range(MESSAGES))
        spark = _session()
        try:
            _measure(server, process, spark)
        finally:
            spark.stop()


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[tuple[Server, int]]:
    (port,) = free_ports(HOST, 1)
    config = {"listen": f"{HOST}:{port}", "jetstream": {"store_dir": str(folder)},
              "authorization": {"user": "bench", "password": "bench"}}  # fmt: skip
    path = folder / "nats.json"
    path.write_text(json.dumps(config))
    process = subprocess.Popen([find_nats_server(), "-c", str(path), "-l", str(folder / "log")])
    try:
        yield Server(f"nats://{HOST}:{port}", "bench", "bench"), process.pid
    finally:
        process.terminate()
        process.wait()


async def _connect(server: Server) -> nats.NATS:
    with JetStream(server):  # waits until the server is up
        return await nats.connect(server.url, user=server.user, password=server.password)


async def _create(server: Server) -> None:
    connection = await _connect(server)
    await connection.jetstream().add_stream(name=STREAM, subjects=[f"{STREAM}.>"], allow_direct=True)
    await connection.close()


def _data(number: int) -> bytes:
    report = {"id": number, "kind": f"k{number % 1000}", "lat": number % 90, "lon": number % 180, "note": ""}
    report["note"] = "x" * (SIZE - len(json.dumps(report)))
    return json.dumps(report).encode()


def _session() -> SparkSession:
    from trimtab.pipeline.nats.source import NatsSource
    from trimtab.pipeline.session import open_session

    spark = open_session("benchmark", {"spark.master": "local[2]"})
    spark.dataSource.register(NatsSource)
    return spark


def _measure(server: Server, process: int, spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    def rows(partitions: int) -> DataFrame:
        options = {"url": server.url, "user": server.user, "password": server.password, "stream": STREAM}
        return spark.read.format("nats").options(**options, partitions=partitions).load()

    def parsed(partitions: int) -> DataFrame:
        report = F.from_json(F.col("data").cast("string"), REPORT)
        return rows(partitions).select("seq", "time", report.alias("report")).select("seq", "time", "report.*")

    def spark_reads(frame: Callable[[int], DataFrame], partitions: int) -> Callable[[], None]:
        return lambda: frame(partitions).write.format("noop").mode("overwrite").save()

    readers: dict[str, tuple[int, Callable[[], None]]] = {
        "nats-py, pull consumer (baseline)": (BY_NATS_PY, lambda: asyncio.run(_nats_py(server))),
        "socket client, direct get": (MESSAGES, lambda: _client(server, few=MESSAGES)),
        "socket client, as it reads": (MESSAGES, lambda: _client(server, few=jetstream.FEW)),
        "Spark rows, 1 partition": (MESSAGES, spark_reads(rows, 1)),
        "Spark rows, 2 partitions": (MESSAGES, spark_reads(rows, 2)),
        "Spark rows + from_json, 1 partition": (MESSAGES, spark_reads(parsed, 1)),
        "Spark rows + from_json, 2 partitions": (MESSAGES, spark_reads(parsed, 2)),
    }
    times_s: dict[str, list[float]] = {name: [] for name in readers}
    server_cpu_s: dict[str, list[float]] = {name: [] for name in readers}
    for number in range(-2, ROUNDS):  # two to warm up
        for name, (count, read) in readers.items():
            cpu, began = _cpu_s(process), time.perf_counter()
            read()
            if number >= 0:
                times_s[name].append((time.perf_counter() - began) / count)
                server_cpu_s[name].append((_cpu_s(process) - cpu) / count)
    baseline = min(times_s["nats-py, pull consumer (baseline)"])
    table = [
        (name, f"{1 / min(times_s[name]):,.0f}", f"{1 / sorted(times_s[name])[ROUNDS // 2]:,.0f}",
         f"{baseline / min(times_s[name]):.1f} x", f"{1e6 * sorted(server_cpu_s[name])[ROUNDS // 2]:.1f} µs")
        for name in readers
    ]  # fmt: skip
    print_table(
        f"{MESSAGES:,} stored messages of {SIZE} bytes ({BY_NATS_PY:,} for nats-py), {ROUNDS} warm rounds in turns",
        ["reader", "best msg/s", "median msg/s", "best / baseline", "server CPU per message"], table,
    )  # fmt: skip


async def _nats_py(server: Server) -> None:
    connection = await _connect(server)
    config = ConsumerConfig(ack_policy=AckPolicy.NONE)
    subscription = await connection.jetstream().pull_subscribe(f"{STREAM}.>", stream=STREAM, config=config)
    received = 0
    while received < BY_NATS_PY:
        received += len(await subscription.fetch(1000))
    await subscription.unsubscribe()
    await connection.close()


def _client(server: Server, few: int) -> None:
    before, jetstream.FEW = jetstream.FEW, few
    try:
        with JetStream(server) as client:
            received = sum(len(rows) for rows in client.read(STREAM, 1, MESSAGES))
    finally:
        jetstream.FEW = before
    assert received == MESSAGES


def _cpu_s(process: int) -> float:
    """CPU time of a process so far, from /proc; NaN without it."""
    try:
        user, system = Path(f"/proc/{process}/stat").read_text().rsplit(") ", 1)[1].split()[11:13]
    except OSError:
        return float("nan")
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
