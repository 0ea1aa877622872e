"""Elastic scaling, live: a day of the taxi city in a few minutes, with promises and thrift on.

Every broker counts as a machine with one core of a tenth of the speed (``benchmarks.slow_machine``), so four brokers
fit on this machine. The figures: the share of messages within the bound of one second, and the broker-minutes in use,
beside those of a fleet that has the brokers of the peak all day. The peak's brokers are counted by ``rightsize``: the
fewest that keep every bound at the busiest moment of the day, and no more than the fleet has.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.slow_machine import SLOWER
from trimtab.cli.output import percent, print_table
from trimtab.control.offline import view_of
from trimtab.control.rightsize import needed
from trimtab.control.settings import Settings
from trimtab.errors import Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.broker.capacity import Capacity
from trimtab.fleet.operator import Operator
from trimtab.fleet.site.launch import Launch
from trimtab.lab.taxi_service import TaxiService
from trimtab.lab.worlds.taxi import Activity, activity, generated
from trimtab.model.hardware import Hardware
from trimtab.model.ids import Ids
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.predict.queueing import Queueing

SEED: Final = 0
BROKERS: Final = 4
REGIONS: Final = 12
TRIPS: Final = 60_000
STEPS: Final = 240
DAY_S: Final = float(os.environ.get("TRIMTAB_DAY_S", "360"))
WARM_UP_S: Final = 60.0  # before the day begins: measurements, and thrift's first plans
PEAK: Final = 50.0  # gps messages/s at the busiest moment
MS: Final = 4.0  # CPU time of a gps message
BOUND_MS: Final = 1000.0
PROMISED: Final = 0.99  # share of messages within the bound
SAVED: Final = 0.25  # share of the peak's broker-minutes

MACHINE: Final = Hardware(
    "tenth-core", cores=1, service=((0.0, 0.5), (1.0, 0.5 + SLOWER)), message_cv=0.1, network_ms=6.0, jitter_ms=2.0
)
SETTINGS: Final = Settings(
    thrift=True, alpha=20.0, idle=0.0, gather=0.0, cool_s=10.0, budget=1.0, budget_s=10.0, patience=1,
    period_s=2.0, headroom=0.8,
    model=Queueing(MACHINE).as_json(),
)  # fmt: skip


def peak_brokers(city: Activity) -> int:
    """The fewest brokers that keep every bound at the busiest moment."""
    total = city.total()
    rate = city.taxis[:, int(np.argmax(total))] * PEAK / float(total.max())
    count = len(rate)
    workload = Workload(
        Topics(
            Ids.numbered("gps", count), rate, processing_ms=np.full(count, MS), latency_ms=np.full(count, BOUND_MS)
        ),
        Clients(Ids.numbered("cars", count)), Brokers(Ids.numbered("b", BROKERS), cores=np.ones(BROKERS)),
        Links.subscriptions(np.arange(count), np.arange(count)),
    )  # fmt: skip
    return needed(view_of(workload), replace(SETTINGS, thrift=False)).needed


async def _day(home: Path, city: Activity) -> tuple[TaxiService, list[tuple[float, int]], int, int]:
    """The service, brokers in use over time, the number of plans, and that of moves."""
    processor = f"benchmarks.slow_machine:work?ms={MS:g}"
    service = TaxiService(home, city, DAY_S, PEAK, processor, MS, BOUND_MS, warm_up_s=WARM_UP_S)
    used: list[tuple[float, int]] = []
    async with contextlib.AsyncExitStack() as stack:
        launch = await stack.enter_async_context(Launch(home, capacity=Capacity(cores=1)))
        await launch.start_hub()
        names = [f"b{number}" for number in range(1, BROKERS + 1)]
        for name in names:
            await launch.start_broker(name)
        await launch.ready(names)
        await launch.start_pipeline(None)
        launch.start_controller(settings=asdict(SETTINGS))
        operator = await stack.enter_async_context(Operator.open(home))
        while True:  # until the first measurement
            with contextlib.suppress(Unreachable):
                if (await operator.status(2.0)).measured is not None:
                    break
            await asyncio.sleep(1.0)

        async def look(share: float) -> None:
            brokers = set((await operator.state()).routing().brokers.values())
            used.append((time.monotonic(), len(brokers)))

        await service.run(look)
        decisions = await operator.decisions(100)
        plans = [decision for decision in decisions if decision.plan is not None]
        moves = sum(len(decision.plan.steps) for decision in plans if decision.plan is not None)
        return service, used, len(plans), moves


def main() -> None:
    city = activity(generated(TRIPS, SEED), REGIONS, STEPS)
    peak = min(peak_brokers(city), BROKERS)
    home = Path(tempfile.mkdtemp(prefix="trimtab-elastic-"))
    try:
        service, used, plans, moves = tasks.run(_day(home / "fleet", city))
    finally:
        shutil.rmtree(home, ignore_errors=True)
    begin = service.began
    inside = [(at - begin, count) for at, count in used if at - begin <= DAY_S]
    gaps = np.diff([at for at, _ in inside] + [DAY_S])
    spent = float((np.array([count for _, count in inside]) * gaps).sum()) / 60.0
    constant = peak * DAY_S / 60.0
    sent, delivered = (
        sum(getattr(tally, what) if what == "sent" else len(tally.delays_s) for tally in (service.gps, service.update))
        for what in ("sent", "delays_s")
    )
    kept = sum(tally.kept(BOUND_MS / 1000.0) * tally.sent for tally in (service.gps, service.update)) / max(sent, 1)
    saved = 1.0 - spent / constant
    by_hour = [
        f"{np.mean([count for at, count in inside if hour <= 24 * at / DAY_S < hour + 2] or [np.nan]):.1f}"
        for hour in range(0, 24, 2)
    ]
    print_table(
        f"a day of the taxi city in {DAY_S:.0f} s: {REGIONS} regions, up to {PEAK:g} messages/s of {MS:g} ms",
        ["figure", "value", "required"],
        [
            ("messages within one second", percent(kept), f"{PROMISED:.0%}"),
            ("broker-minutes in use", f"{spent:.1f}", ""),
            ("of the peak's brokers all day", f"{constant:.1f} ({peak} brokers)", ""),
            ("saved", percent(saved, 1), f"{SAVED:.0%}"),
            ("messages delivered", f"{delivered:,} of {sent:,}", ""),
            ("p90 of gps topics", f"{service.gps.percentile_ms(90):.0f} ms", ""),
            ("p99 of gps topics", f"{service.gps.percentile_ms(99):.0f} ms", ""),
            ("plans, moves", f"{plans}, {moves}", ""),
            ("brokers in use, every two hours", " ".join(by_hour), ""),
        ],
        left=(0,),
    )  # fmt: skip
    met = kept >= PROMISED and saved >= SAVED
    print("bars met" if met else "BARS MISSED")
    if not met:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
