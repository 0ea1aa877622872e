"""The emergency application live: a simulated city on a running fleet, and the delay of its notifications.

Each SDK client acts for a group of people, as a gateway would. The delay is measured from a report's publication to its
arrival at a subscriber. It consists of the wait for the next execution, half of the channel's period on average, and
the time that the pipeline and the fleet take. Where the result of a subscription depends on its parameters alone, the
expected rows are computed here as well, and missing and repeated rows are counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput, BadKnob, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.operator import Operator
from trimtab.fleet.protocol.types import subscription_id
from trimtab.fleet.sdk.client import connect
from trimtab.lab.worlds.city import CHANNELS, City
from trimtab.model.positions import EARTH_KM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trimtab.fleet.operator.tables import ChannelRow
    from trimtab.fleet.sdk.client import Client
    from trimtab.fleet.sdk.results import ChannelSubscription, Result

POSITIONS: Final = "emergency.positions"
REPORTS: Final = "emergency.reports"
MANIFEST: Final = "examples/emergency/emergency.yaml"
GROUP: Final = 20  # people per client
POSITION_S: Final = 5.0  # interval between two positions of a person
TICK_S: Final = 0.2
PATIENCE_S: Final = 240.0  # longest wait for the first results, while Spark compiles its plans
SETTLE_S: Final = 1.0  # longest time between the first and the last result of an execution
LEAVE_S: Final = 30.0
MOST_BARS: Final = 300  # most bars in the plot, each a second or longer
EDGE_KM: Final = 1e-9  # distance to a circle's edge within which Spark and numpy may differ

# Channels that find a report by its kind, its place or both; the last one sums them up.
BY_KIND: Final = ("reports_of_kind", "kind_near_place")
BY_PLACE: Final = ("kind_near_place", "counts_around")
SUMS: Final = "counts_around"


@dataclass(slots=True)
class ChannelFigures:
    """The figures of one channel, over the results of all clients."""

    period_s: float
    people: int = 0  # subscriptions of people
    backend: int = 0  # distinct subscriptions in the pipeline
    executions: set[int] = field(default_factory=set)
    results: int = 0
    arrival_s: list[float] = field(default_factory=list)  # arrival time of each row, since the start
    delay_s: list[float] = field(default_factory=list)  # delay of each row after its report
    expected: int | None = None  # matches of reports and subscriptions, where parameters alone determine them
    missing: int = 0
    repeated: int = 0

    @property
    def rows(self) -> int:
        return len(self.delay_s)

    def quantile_s(self, share: float) -> float | None:
        return float(np.quantile(self.delay_s, share)) if self.delay_s else None

    def as_json(self) -> dict[str, Any]:
        delays = {f"p{round(100 * share)}_s": self.quantile_s(share) for share in (0.5, 0.9, 0.99)}
        return {
            "period_s": self.period_s, "subscriptions": self.people, "backend_subscriptions": self.backend,
            "executions": len(self.executions), "results": self.results, "rows": self.rows, **delays,
            "expected": self.expected, "missing": self.missing, "repeated": self.repeated,
        }  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """The figures of the run so far."""

    people: int
    clients: int
    seed: int
    seconds: float  # time during which reports are published
    channels: dict[str, ChannelFigures]
    phase: str = "connecting"
    elapsed_s: float = 0.0  # of ``seconds``
    positions: int = 0  # published
    reports: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            "people": self.people, "clients": self.clients, "seed": self.seed, "seconds": self.seconds,
            "positions": self.positions, "reports": self.reports,
            "channels": {name: figures.as_json() for name, figures in self.channels.items()},
        }  # fmt: skip


async def run(
    fleet_home: str | Path, *, people: int = 400, seconds: float = 120.0, seed: int = 0,
    report: Callable[[Outcome], None] = lambda outcome: None,
) -> Outcome:  # fmt: skip
    """Simulate the city for ``seconds`` on the fleet of this folder; ``report`` is called every second."""
    if not 0.0 < seconds < float("inf"):
        raise BadKnob("emergency", "seconds", seconds, "more than zero, and finite")
    city = City(seed, people)
    home = Path(fleet_home)
    brokers, rows = await _fleet(home)
    for name in CHANNELS:
        if name not in rows:
            raise BadInput(f"the fleet in {home} has no channel '{name}'; start it with: trimtab up --app {MANIFEST}")
    groups = [range(first, min(first + GROUP, people)) for first in range(0, people, GROUP)]
    channels = {name: ChannelFigures(rows[name].period_s) for name in CHANNELS}
    outcome = Outcome(people, len(groups), seed, seconds, channels)
    async with contextlib.AsyncExitStack() as stack:
        reporting = asyncio.create_task(_report_progress(outcome, report))
        stack.push_async_callback(tasks.end, reporting)
        clients = [
            await stack.enter_async_context(connect(home, name=f"emergency-{row}", home=brokers[row % len(brokers)]))
            for row in range(len(groups))
        ]
        pairs = [_Group(client, members) for client, members in zip(clients, groups, strict=True)]
        await _Simulation(city, outcome, pairs, {name: rows[name].parameters for name in CHANNELS}).run()
    report(outcome)
    return outcome


async def _fleet(home: Path) -> tuple[list[str], dict[str, ChannelRow]]:
    """Brokers that are up, and channels by name."""
    async with Operator.open(home) as operator:
        alive, channels = await operator.alive(), await operator.channels()
    if not alive:
        raise Unreachable(f"no broker of the fleet in {home} is up")
    return sorted(alive), {row.channel: row for row in channels}


async def _report_progress(outcome: Outcome, report: Callable[[Outcome], None]) -> None:
    while True:
        report(outcome)
        await asyncio.sleep(1.0)


@dataclass(slots=True, eq=False)
class _Subscription:
    """A subscription of one client on behalf of one or more of its people."""

    channel: str
    params: dict[str, Any]
    ids: Counter[str] = field(default_factory=Counter)  # ids of the reports received
    sum: int = 0  # for channels that count: the sum of the counts


@dataclass(slots=True, eq=False)
class _Group:
    """A group of people and the client that acts for them."""

    client: Client
    people: range
    subscriptions: dict[str, _Subscription] = field(default_factory=dict)  # by the subscription's id
    open: list[ChannelSubscription] = field(default_factory=list)  # the client's subscriptions in the fleet


class _Simulation:
    def __init__(
        self, city: City, outcome: Outcome, groups: list[_Group], parameters: dict[str, dict[str, str]]
    ) -> None:
        self._city = city
        self._outcome = outcome
        self._groups = groups
        self._parameters = parameters  # channel -> its parameters
        self._run = f"{time.time_ns() // 1_000_000:x}"  # id that marks the reports of this run
        self._published: list[tuple[str, str, float, float]] = []  # id, kind, lat, lon
        self._began = float("inf")  # when the first report was published

    async def run(self) -> None:
        outcome, first = self._outcome, self._groups[0].client
        await first.create_topic(POSITIONS)
        await first.create_topic(REPORTS)
        outcome.phase = "waiting for the pipeline"
        await self._publish_positions(0.0, range(outcome.people))
        await self._drill(first)
        try:
            outcome.phase = "subscribing"
            await asyncio.gather(*(self._subscribe(group) for group in self._groups))
            self._count_subscriptions()
            outcome.phase = "running"
            await self._publish()
            outcome.phase = "waiting for the last executions"
            await self._drill(first)
            await asyncio.sleep(SETTLE_S)
        finally:
            outcome.phase = "leaving"
            with contextlib.suppress(BadInput, Unreachable, TimeoutError):  # the fleet may have stopped meanwhile
                await tasks.within(LEAVE_S, asyncio.gather(*(self._leave(group) for group in self._groups)))
        self._audit()
        outcome.phase = "done"

    # Before and after.

    async def _drill(self, client: Client) -> None:
        """Publish test reports, far from all people, until every channel has delivered one.

        Then all channels are up and warm, and all earlier publications have been processed.
        """
        name = f"drill-{self._run}"
        place = {"lat": 0.0, "lon": 0.0}
        row = {"id": name, "kind": name, **place, "severity": 1, "text": "a drill"}
        values = {"user": name, "kind": name, **place, "km": 1.0, "severity": 1, "least": 1}
        began, missing = time.time(), set(self._parameters)

        def on_result(result: Result) -> None:
            if any(_age(reported, began) < 0.0 for reported in result.rows):
                missing.discard(result.channel)

        subscriptions = await client.subscribe_channels(
            [
                (channel, on_result, {name: values[name] for name in names})
                for channel, names in self._parameters.items()
            ]
        )
        try:
            while missing:
                if time.time() > began + PATIENCE_S:
                    raise Unreachable(
                        f"no result of {', '.join(sorted(missing))} came within {PATIENCE_S:g} s: is the pipeline "
                        f"running? trimtab up --app {MANIFEST}"
                    )
                await asyncio.sleep(1.0)
                await client.publish(POSITIONS, json.dumps({"user": name, **place, "at": _now()}))
                await client.publish(REPORTS, json.dumps(row | {"at": _now()}))
        finally:
            await client.unsubscribe_channels(subscriptions)

    async def _subscribe(self, group: _Group) -> None:
        for person in group.people:
            for channel, params in self._city.subscriptions(person):
                self._outcome.channels[channel].people += 1
                group.subscriptions.setdefault(subscription_id(channel, params), _Subscription(channel, params))
        requests = [(row.channel, self._receiver(row), row.params) for row in group.subscriptions.values()]
        group.open = await group.client.subscribe_channels(requests)

    def _count_subscriptions(self) -> None:
        channels = {identity: row.channel for group in self._groups for identity, row in group.subscriptions.items()}
        for channel in channels.values():
            self._outcome.channels[channel].backend += 1

    async def _leave(self, group: _Group) -> None:
        """Unsubscribe: a named client keeps its subscriptions, and the pipeline would go on answering them."""
        await group.client.unsubscribe_channels(group.open)

    # Publications and results.

    async def _publish(self) -> None:
        """Publish positions and reports for the time of the run."""
        outcome, city = self._outcome, self._city
        clock, began = asyncio.get_running_loop().time, asyncio.get_running_loop().time()
        self._began = time.time()
        then_s, turn = 0.0, 0
        while then_s < outcome.seconds:
            await asyncio.sleep(TICK_S)
            now_s = min(clock() - began, outcome.seconds)
            upto = int(now_s / POSITION_S * outcome.people)  # people publish in turn
            await self._publish_positions(now_s - then_s, range(turn, upto))
            await self._publish_reports(city.reports(then_s, now_s))
            then_s, turn = now_s, upto
            outcome.elapsed_s = now_s
        await asyncio.gather(*(group.client.flush() for group in self._groups))

    async def _publish_positions(self, dt_s: float, turns: range) -> None:
        now, people = self._city.step(dt_s), self._outcome.people
        for turn in turns[-people:]:
            person = turn % people
            place = {"lat": round(float(now.lat[person]), 6), "lon": round(float(now.lon[person]), 6)}
            row = {"user": self._city.names[person], **place, "at": _now()}
            await self._groups[person // GROUP].client.publish(POSITIONS, json.dumps(row))
            self._outcome.positions += 1

    async def _publish_reports(self, reports: Iterable[Any]) -> None:
        for report in reports:
            number = len(self._published)
            row = {
                "id": f"{self._run}-{number}", "kind": report.kind, "lat": report.lat, "lon": report.lon,
                "severity": report.severity, "at": _now(), "text": report.text,
            }  # fmt: skip
            self._published.append((row["id"], report.kind, report.lat, report.lon))
            await self._groups[number % len(self._groups)].client.publish(REPORTS, json.dumps(row))
            self._outcome.reports += 1

    def _receiver(self, subscription: _Subscription) -> Callable[[Result], None]:
        figures = self._outcome.channels[subscription.channel]

        def on_result(result: Result) -> None:
            now = time.time()
            # A client that reconnects under its name gets results that it missed; these belong to an earlier run.
            own = [row for row in result.rows if _age(row, self._began) <= 0.0]
            if not own:
                return
            figures.executions.add(result.execution)
            figures.results += 1
            for row in own:
                figures.arrival_s.append(now - self._began)
                figures.delay_s.append(_age(row, now))
                if "id" in row:
                    subscription.ids[row["id"]] += 1
                elif subscription.channel == SUMS:
                    subscription.sum += row["reports"]

        return on_result

    # The audit.

    def _audit(self) -> None:
        if not self._published:
            return
        ids, kinds, lat, lon = (np.array(column) for column in zip(*self._published, strict=True))
        for subscription in (row for group in self._groups for row in group.subscriptions.values()):
            figures, params = self._outcome.channels[subscription.channel], subscription.params
            figures.repeated += subscription.ids.total() - len(subscription.ids)
            if subscription.channel not in (*BY_KIND, *BY_PLACE):
                continue
            sure = maybe = np.ones(len(ids), dtype=bool)
            if subscription.channel in BY_KIND:
                sure = maybe = kinds == params["kind"]
            if subscription.channel in BY_PLACE:
                beyond_km = distance_km(lat, lon, params["lat"], params["lon"]) - params["km"]
                sure, maybe = sure & (beyond_km < -EDGE_KM), maybe & (beyond_km < EDGE_KM)
            figures.expected = (figures.expected or 0) + int(sure.sum())
            if subscription.channel == SUMS:
                figures.missing += max(0, int(sure.sum()) - subscription.sum)
                figures.repeated += max(0, subscription.sum - int(maybe.sum()))
            else:
                figures.missing += len(set(ids[sure].tolist()) - set(subscription.ids))


def distance_km(lat: Any, lon: Any, of_lat: float, of_lon: float) -> Any:
    """The pipeline's distance_km, in numpy."""
    a, b, c, d = (np.radians(degrees) for degrees in (lat, lon, of_lat, of_lon))
    halves = np.sin((c - a) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((d - b) / 2) ** 2
    return 2 * EARTH_KM * np.arcsin(np.minimum(1.0, np.sqrt(halves)))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _age(row: dict[str, Any], now: float) -> float:
    """Seconds since the publication of the report in a result row."""
    return now - datetime.fromisoformat(row["at"]).timestamp()


def draw(outcome: Outcome, path: Path) -> None:
    """Left: the delay of each channel's results, against its period. Right: the arrival times of results."""
    from trimtab.lab import plots

    sheet, panels = plots.figure(1, 2, width=6.2, height=4.4)
    left, right = panels[0]
    names = list(outcome.channels)
    colours = dict(zip(names, (f"C{row}" for row in range(len(names))), strict=True))
    longest = max((figures.quantile_s(0.999) or 0.0 for figures in outcome.channels.values()), default=0.0)
    bins = np.linspace(0.0, max(longest, 1.0) * 1.05, 90)
    for row, (name, figures) in enumerate(outcome.channels.items()):
        floor = len(names) - 1 - row
        if figures.delay_s:
            share, _ = np.histogram(figures.delay_s, bins)
            height = floor + 0.8 * share / max(share.max(), 1)
            left.fill_between(bins[:-1], floor, height, step="post", color=colours[name], alpha=0.7, linewidth=0)
            left.plot([figures.quantile_s(0.5)], [floor], "|", color="black", markersize=9, clip_on=False)
            left.plot([figures.quantile_s(0.99)], [floor], "|", color="black", markersize=5, clip_on=False)
        left.plot([figures.period_s] * 2, [floor, floor + 0.85], color="black", linewidth=1, linestyle="--")
    left.set_yticks(range(len(names)), names[::-1])
    left.set_ylim(-0.15, len(names))
    left.set_xlabel("from publication to delivery, s (ticks: median, p99; dashed: period)")
    left.grid(axis="y", visible=False)
    end_s = max(outcome.seconds, *(max(figures.arrival_s, default=0.0) for figures in outcome.channels.values()))
    edges = np.linspace(0.0, end_s, min(MOST_BARS, round(end_s) + 1) + 1)
    columns = [figures.arrival_s for figures in outcome.channels.values()]
    per_s = [np.full(len(column), 1.0 / (edges[1] - edges[0])) for column in columns]
    right.hist(columns, edges.tolist(), weights=per_s, stacked=True, color=list(colours.values()))
    right.axvline(outcome.seconds, color="black", linewidth=1, linestyle=":")
    right.set_xlabel("time, s (dotted: the last report; colours: channels, as on the left)")
    right.set_ylabel("rows delivered per second")
    title = f"{outcome.people} people, {outcome.reports:,} reports in {outcome.seconds:g} s"
    sheet.suptitle(title, fontsize=10)
    plots.save(sheet, path)
