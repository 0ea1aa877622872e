"""The pipeline end to end on one machine: publishers, brokers, hub, Spark and subscribers at the same time.

Ten channels have 10,000 subscriptions each, by 100 clients. Publications come at a steady rate through the SDK and
contain the time of sending. The delay is measured from there to the callback of a subscriber. For a channel with a
period it is at most the period plus the time of the pipeline; for a continuous channel, the time of the pipeline.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.cli.output import print_table
from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.sdk.client import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trimtab.fleet.sdk.results import Result

RATE = 10_000  # publications per second
PERIODS_S = (10, 20, 30)
SLOW_S = 180  # time at a quarter of the rate, until the JVM has compiled its code
WARM_S = 40  # time at the full rate before the measurement
SECONDS = 60
CLIENTS = 100
PROCESSES = 4  # processes of the clients, so that results of a client do not wait for other clients
SUBSCRIPTIONS = 10_000  # per channel
KINDS = 1_000
DEVICES = 100_000
SEED = 0
TOPIC = "load.reports"
BROKERS = ("b1", "b2")
CONTROLLERS = os.environ.get("CONTROLLERS", "0")  # with a controller, Spark also measures the fleet

NEAR = """SELECT r.id, r.sent, r.lat, r.lon, r.severity FROM reports r
      WHERE r.kind = :kind AND distance_km(r.lat, r.lon, :lat, :lon) <= :km"""
OF_DEVICE = "SELECT r.id, r.sent, r.severity FROM reports r WHERE r.device = :device"
COUNTS = """SELECT count(*) AS reports, min(r.sent) AS sent FROM reports r
      WHERE r.kind = :kind AND r.severity >= :severity GROUP BY r.kind HAVING count(*) >= :least"""
SHAPES = {  # query, parameters
    "near": (NEAR, {"kind": "string", "lat": "double", "lon": "double", "km": "double"}),
    "device": (OF_DEVICE, {"device": "int"}),
    "counts": (COUNTS, {"kind": "string", "severity": "int", "least": "int"}),
}
CHANNELS = {  # name -> shape, period
    **{f"near_{n}": ("near", PERIODS_S[n % 3]) for n in range(6)},
    **{f"device_{n}": ("device", PERIODS_S[n]) for n in range(2)},
    "counts": ("counts", PERIODS_S[2]),
    "near_now": ("near", 0),
}


def manifest() -> str:
    lines = [
        "app: load", "feeds:", "  reports:", f"    topic: {TOPIC}",
        "    schema: {id: long, kind: string, device: int, lat: double, lon: double, severity: int, sent: double}",
        "    retention: 10m", "channels:",
    ]  # fmt: skip
    for name, (shape, period) in CHANNELS.items():
        query, parameters = SHAPES[shape]
        typed = ", ".join(f"{key}: {kind}" for key, kind in parameters.items())
        lines += [
            f"  {name}:", f"    parameters: {{{typed}}}", f"    period: {f'{period}s' if period else 'continuous'}",
            "    query: |", f"      {query}",
        ]  # fmt: skip
    return "\n".join(lines) + "\n"


def subscriptions(client: int) -> Iterator[tuple[str, dict[str, Any]]]:
    rng = np.random.default_rng((SEED, client))
    for name, (shape, _) in CHANNELS.items():
        for _ in range(SUBSCRIPTIONS // CLIENTS):
            kind = f"kind-{rng.integers(KINDS)}"
            if shape == "near":
                place = {"lat": float(rng.uniform(35, 65)), "lon": float(rng.uniform(-10, 30))}
                yield name, {"kind": kind, **place, "km": float(rng.uniform(5, 30))}
            elif shape == "device":
                yield name, {"device": int(rng.integers(DEVICES))}
            else:
                yield name, {"kind": kind, "severity": int(rng.integers(1, 6)), "least": int(rng.integers(1, 200))}


# The parts, each in a separate process.


async def _subscribe(home: Path, part: int) -> None:
    """Count and time results. Print a line when all subscriptions are made, and the figures after a line on stdin."""
    ages: dict[str, list[tuple[float, float]]] = {name: [] for name in CHANNELS}  # arrival time and age of each row
    twice = 0

    def receiver(channel: str) -> Callable[[Result], None]:
        samples, last = ages[channel], 0

        def on_result(result: Result) -> None:
            nonlocal twice, last
            now = time.time()
            twice += result.execution <= last
            last = result.execution
            samples.extend((now, now - row["sent"]) for row in result.rows)

        return on_result

    async with contextlib.AsyncExitStack() as stack:
        limit = asyncio.Semaphore(3)

        async def start(number: int) -> None:
            async with limit:
                client = connect(home, name=f"sub-{number}", home=BROKERS[number % len(BROKERS)])
                await stack.enter_async_context(client)
                requests = [(name, receiver(name), params) for name, params in subscriptions(number)]
                await client.subscribe_channels(requests)

        await asyncio.gather(*map(start, range(part, CLIENTS, PROCESSES)))
        print("subscribed", flush=True)
        line = await asyncio.to_thread(sys.stdin.readline)
        since, upto = json.loads(line)
        ages_in_span = {
            name: [age for when, age in samples if since <= when - age < upto] for name, samples in ages.items()
        }  # of the publications sent during the measurement
        print(json.dumps({"ages": ages_in_span, "twice": twice}), flush=True)
        os._exit(0)  # closing all clients would take long, and the fleet is deleted anyway


async def _publish(home: Path, rate: int) -> None:
    """Publish at a steady rate until a line on stdin, then print the number of publications."""
    rng = np.random.default_rng((SEED, 2**31))
    ended = asyncio.create_task(asyncio.to_thread(sys.stdin.readline))
    async with connect(home, name="pub-0", home="b1") as first, connect(home, name="pub-1", home="b2") as second:
        clients, sent, began = (first, second), 0, time.time()
        while not ended.done():
            past = time.time() - began
            due = int((min(past, SLOW_S) / 4 + max(past - SLOW_S, 0)) * rate) - sent
            kinds, devices = rng.integers(KINDS, size=due), rng.integers(DEVICES, size=due)
            lat, lon, severity = rng.uniform(35, 65, due), rng.uniform(-10, 30, due), rng.integers(1, 6, size=due)
            for at in range(due):
                await clients[at & 1].publish(
                    TOPIC,
                    f'{{"id": {sent + at}, "kind": "kind-{kinds[at]}", "device": {devices[at]}, "lat": {lat[at]:.5f}, '
                    f'"lon": {lon[at]:.5f}, "severity": {severity[at]}, "sent": {time.time():.4f}}}',
                )
            sent += due
            await asyncio.sleep(0.005)
        time_s = time.time() - began - SLOW_S * 3 / 4
    print(json.dumps({"sent": sent, "took_s": time_s, "used_s": time.process_time()}), flush=True)


def main() -> None:
    trimtab = (sys.executable, "-m", "trimtab.cli.main")
    me = (sys.executable, "-m", "benchmarks.pipeline")
    done: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        (home / "load.yaml").write_text(manifest())

        def start(*words: str) -> subprocess.Popen[str]:
            process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            stack.callback(_stop, process)
            return process

        fleet = start(*trimtab, "up", "--home", folder, "--brokers", str(len(BROKERS)), "--controllers", CONTROLLERS)
        asyncio.run(_create_topic(home))
        pipeline = start(*trimtab, "pipeline", str(home / "load.yaml"), "--home", folder, "--json")
        threading.Thread(target=_listen, args=(pipeline, done), daemon=True).start()
        while not (home / "pipeline" / "ready").exists():
            assert (pipeline.poll(), fleet.poll()) == (None, None)
            time.sleep(0.2)
        began = time.time()
        subscribers = [start(*me, "subscribe", folder, str(part)) for part in range(PROCESSES)]
        for subscriber in subscribers:
            assert subscriber.stdout is not None
            assert subscriber.stdout.readline() == "subscribed\n"
        subscribed = time.time() - began
        print(f"{CLIENTS * len(list(subscriptions(0))):,} subscriptions in {subscribed:.0f} s", flush=True)
        publisher = start(*me, "publish", folder)
        time.sleep(SLOW_S + WARM_S)
        since, used = time.time(), _cpu()
        time.sleep(SECONDS)
        upto, used_after = time.time(), _cpu()
        time.sleep(max(PERIODS_S) + 5)
        sent = json.loads(publisher.communicate("\n")[0])
        reports = [json.loads(part.communicate(json.dumps([since, upto]) + "\n")[0]) for part in subscribers]
    figures = {
        "ages": {name: [age for report in reports for age in report["ages"][name]] for name in CHANNELS},
        "twice": sum(report["twice"] for report in reports),
    }
    _report(sent, figures, [execution for execution in done if execution["ended"] >= since], used_after - used)


async def _create_topic(home: Path) -> None:
    """Create the topic as soon as the fleet is up."""
    began = time.time()
    while True:
        try:
            async with connect(home, name="maker") as client:
                await client.create_topic(TOPIC)
                return
        except (BadInput, Unreachable):
            if time.time() > began + 60:
                raise
            await asyncio.sleep(0.5)


def _listen(pipeline: subprocess.Popen[str], done: list[dict[str, Any]]) -> None:
    assert pipeline.stdout is not None
    for line in pipeline.stdout:
        with contextlib.suppress(ValueError):
            done.append(json.loads(line) | {"ended": time.time()})


def _stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    process.kill()
    process.wait()


def _cpu() -> float:
    """Busy time of all cores of this machine, in seconds."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def _report(sent: dict[str, Any], figures: dict[str, Any], done: list[dict[str, Any]], used: float) -> None:
    rows = []
    for name, (_, period) in CHANNELS.items():
        ages = np.array(figures["ages"][name])
        executions = [execution for execution in done if execution["channel"] == name]
        times_s = np.array([execution["took_s"] for execution in executions] or [0.0])
        p50, p99 = np.quantile(ages, [0.5, 0.99]) if len(ages) else (np.nan, np.nan)
        rows.append(
            (
                name, f"{period} s" if period else "continuous", f"{len(executions)}", f"{np.mean(times_s):.2f} s",
                f"{len(ages):,}", f"{p50:.2f} s", f"{p99:.2f} s", f"{p99 - period:+.2f} s",
            )
        )  # fmt: skip
    print_table(
        f"{sent['sent'] / sent['took_s']:,.0f} publications/s, {len(CHANNELS) * SUBSCRIPTIONS:,} subscriptions, "
        f"{SECONDS} s",
        ["channel", "period", "executions", "mean time", "rows", "p50", "p99", "p99 - period"],
        rows,
        note=f"{figures['twice']} results twice; {used / SECONDS:.2f} of {os.cpu_count()} cores were busy",
    )


if __name__ == "__main__":
    role, folder = sys.argv[1], Path(sys.argv[2])
    asyncio.run(_subscribe(folder, int(sys.argv[3])) if role == "subscribe" else _publish(folder, RATE))
