"""The control loop: the time of a decision, and of turning history into a workload.

Decisions: every client has ten subscriptions to 20,000 topics, and homes are skewed. The time is from the measurement
to the plan. History: Spark generates rows of telemetry, and the command ``trimtab workload`` turns them into a workload
while the memory of its processes is measured.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.cli.output import print_table
from trimtab.control.decide import NoPlan, decide
from trimtab.control.view import View
from trimtab.fleet.protocol.plans import Question
from trimtab.model.ids import Ids
from trimtab.model.key import RoutingTable
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot, unpack

SEED = 0
TOPICS = 20_000
PER_CLIENT = 10  # subscriptions of a client
ROUNDS = 5
MILLIONS = 200  # rows of history


def snapshot(clients: int, brokers: int) -> tuple[Snapshot, dict[str, str]]:
    rng = np.random.default_rng((SEED, clients))
    topic = rng.integers(TOPICS, size=(clients, PER_CLIENT)).astype(np.int64)
    pairs = np.unique(topic * clients + np.arange(clients)[:, None])
    workload = Workload(
        Topics(Ids.numbered("t", TOPICS), np.exp(rng.uniform(0, 5, TOPICS)), np.full(TOPICS, 200.0)),
        Clients(Ids.numbered("c", clients)), Brokers(Ids.numbered("b", brokers)),
        Links.subscriptions((pairs // clients).astype(np.int32), (pairs % clients).astype(np.int32)),
    )  # fmt: skip
    home = np.minimum(rng.geometric(3.0 / brokers, clients) - 1, brokers - 1)
    return Snapshot(0.0, workload), {f"c{client}": f"b{row}" for client, row in enumerate(home.tolist())}


def decisions() -> None:
    rows = []
    for clients, brokers in ((1_000, 5), (10_000, 50), (100_000, 200)):
        fleet_snapshot, homes = snapshot(clients, brokers)
        data = fleet_snapshot.pack()
        alive = [f"b{row}" for row in range(brokers)]
        question = Question(1, 0.0, ("uneven",), "trim", 1, 0.1, clients)
        times_s = []
        for _ in range(ROUNDS + 1):  # the first one compiles
            began = time.perf_counter()
            view = View.of(fleet_snapshot, RoutingTable.of_homes(homes), alive)
            plan = decide(view, question)
            times_s.append(time.perf_counter() - began)
        assert not isinstance(plan, NoPlan)
        began = time.perf_counter()
        unpack(data)
        unpacked = time.perf_counter() - began
        rows.append(
            (f"{clients:,}", f"{brokers}", f"{statistics.median(times_s[1:]):.3f} s", f"{max(times_s[1:]):.3f} s",
             f"{len(plan.steps):,}", f"{plan.before.spread:.2f} -> {plan.predicted.spread:.4f}",
             f"{len(data) / 1e6:.1f} MB, {unpacked:.2f} s")
        )  # fmt: skip
    columns = ["clients", "brokers", "step, median", "worst", "moves", "spread", "measurement"]
    print_table("from a measurement to a plan", columns, rows)


def history(millions: int) -> None:
    from trimtab.pipeline import telemetry
    from trimtab.pipeline.session import open_session

    folder = Path(tempfile.mkdtemp(prefix="trimtab-history-"))
    try:
        spark = open_session("benchmark")
        count = millions * 1_000_000
        spark.range(count).selectExpr(
            "CAST(id DIV 20000 AS DOUBLE) AS at", "1.0D AS period_s", "concat('b', id % 50) AS broker",
            "concat('t', id % 20000) AS topic", "id % 17 AS in_msgs", "(id % 17) * 200 AS in_bytes",
            "id % 5 AS out_msgs", "(id % 5) * 200 AS out_bytes", "0L AS processed", "0.0D AS busy_s",
            "CAST(map() AS MAP<INT, LONG>) AS latency",
        ).write.parquet(str(folder / "h" / "topics"))  # fmt: skip
        spark.range(1_000_000).selectExpr(
            "CAST(id % 1000 AS DOUBLE) AS at", "concat('b', id % 50) AS broker", "concat('c', id % 100000) AS client",
            "concat('t', (id * 7919) % 20000) AS topic", "'sub' AS role",
        ).write.parquet(str(folder / "h" / "links"))  # fmt: skip
        spark.range(50_000).selectExpr(
            "CAST(id DIV 50 AS DOUBLE) AS at", "1.0D AS period_s", "concat('b', id % 50) AS broker", "0.5D AS cpu",
            "1L AS memory_bytes", "1L AS connections", "0L AS in_msgs", "0L AS in_bytes", "0L AS out_msgs",
            "0L AS out_bytes",
        ).write.parquet(str(folder / "h" / "brokers"))  # fmt: skip
        assert set(telemetry.TABLES) == {"topics", "links", "brokers"}
        spark.stop()
        summary, jvm, python = _command(folder)
        size = sum(path.stat().st_size for path in (folder / "h").rglob("*.parquet"))
        print_table(
            "history into a workload", ["rows", "on disk", "took", "links", "peak memory, JVM + Python"],
            [(f"{summary['events']:,}", f"{size / 1e9:.2f} GB", f"{summary['seconds']:.1f} s",
              f"{summary['rows']['links']:,}", f"{jvm:,.0f} + {python:,.0f} MiB")],
        )  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _command(folder: Path) -> tuple[dict[str, Any], float, float]:
    """The command's JSON output, and the peak memory of its Java and Python processes, in MiB."""
    words = ["-m", "trimtab.cli.main", "workload", "--from", folder / "h", "--out", folder / "out", "--json"]
    process = subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.PIPE, text=True)
    peaks: dict[str, float] = {}
    while process.poll() is None:
        for pid in (process.pid, *_children(process.pid)):
            with contextlib.suppress(OSError, IndexError):  # the process may just have ended
                text = Path(f"/proc/{pid}/status").read_text()
                name = "java" if text.startswith("Name:\tjava\n") else "python"
                peaks[name] = max(peaks.get(name, 0.0), float(text.split("VmHWM:")[1].split()[0]) / 1024)
        time.sleep(0.1)
    assert process.stdout is not None
    return json.loads(process.stdout.read()), peaks["java"], peaks["python"]


def _children(pid: int) -> list[int]:
    """All descendants of a process."""
    pids: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, path.read_text().split()):
                pids += [child, *_children(child)]
    return pids


def main() -> None:
    decisions()
    history(MILLIONS)
