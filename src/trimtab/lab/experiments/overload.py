"""Gupta et al. (SEC'21), Section 5.4: which traffic figure of a broker tells that its p95 is out of bound.

A real broker gets traffic in bulk, of several mixes and growing rates. Meanwhile a process of its own publishes and
receives some messages of the same size, and measures their latency. The paper finds the rate of outgoing messages, and
1500k messages/s as the threshold, on a broker of 8 cores that stores messages.
"""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.fleet import tasks
from trimtab.fleet.protocol import subjects
from trimtab.lab.experiment import Bar, Report, grouped, markdown_table
from trimtab.lab.profile.bench import PREFIX, open_bench
from trimtab.lab.profile.trial import run_load

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.lab.experiment import Job, Row
    from trimtab.lab.profile.bench import Bench
    from trimtab.model.workload import Floats

# topics, publishers of each, subscribers of each, bytes of a message
MIXES: Final[dict[str, tuple[int, int, int, int]]] = {
    "one to one, 64 B": (8, 1, 1, 64),
    "one to one, 1 KiB": (8, 1, 1, 1024),
    "one to one, 16 KiB": (4, 1, 1, 16384),
    "one to 8, 64 B": (2, 1, 8, 64),
    "one to 8, 1 KiB": (2, 1, 8, 1024),
    "one to 32, 64 B": (1, 1, 32, 64),
    "one to 32, 1 KiB": (1, 1, 32, 1024),
    "8 to one, 64 B": (1, 8, 1, 64),
    "to nobody, 64 B": (8, 1, 0, 64),
}
CANDIDATES: Final = {
    "in_msgs": "messages in", "out_msgs": "messages out", "msgs": "messages in + out", "in_bytes": "bytes in",
    "out_bytes": "bytes out", "bytes": "bytes in + out", "cpu": "CPU, cores",
}  # fmt: skip
LIMIT: Final = "msgs"  # what ``[control] messages`` limits
BOUND_MS: Final = 10.0
SECONDS: Final = 3
WARM_S: Final = 1.0
FIRST: Final = 10_000.0  # messages/s, in and out, of the first point
GROWTH: Final = 1.6
MOST: Final = 16  # points of a mix
BEYOND: Final = 2  # points out of bound in a row after which a mix ends
SHORT: Final = 0.5  # share of the offered traffic below which a mix ends
PROBES: Final = 200.0  # messages/s whose latency is measured
WAIT_S: Final = 3.0
LIMIT_S: Final = 60.0


class Overload:
    title = "What tells that a broker is overloaded (Gupta Section 5.4)"
    seeds = 1
    timed = True

    def jobs(self, seeds: int, seconds: int = SECONDS, bound: float = BOUND_MS, scale: int = 100) -> list[Job]:
        """``scale``: percent of the mixes, for trying it out."""
        mixes = list(MIXES)[: max(1, round(len(MIXES) * min(scale, 100) / 100))]
        return [
            {"mix": mix, "seconds": seconds, "bound_ms": bound, "seed": seed} for seed in range(seeds) for mix in mixes
        ]

    def run(self, job: Job) -> list[Row]:
        return tasks.run(_ramp(job))

    def report(self, rows: list[Row], out: Path) -> Report:
        bound_ms = rows[0]["bound_ms"]
        bad = np.array([_p95(row) > bound_ms for row in rows])
        found = {name: separation(np.array([row[name] for row in rows]), bad) for name in CANDIDATES}
        order = sorted(found, key=lambda name: (-found[name]["auc"], found[name]["errors"]))
        texts = [_about(rows, bad)]
        if bad.any() and not bad.all():
            _draw(rows, bad, found, out)
            texts += ["![p95 by each figure](overload.png)", _table(rows, bad, found, order), _advice(rows, bad, found)]
        else:
            texts.append("No threshold can be told: the points are all inside the bound, or all outside.")
        figures = {f"{name} {what}": value for name, values in found.items() for what, value in values.items()}
        best = max(found[name]["auc"] for name in found)
        bars = (Bar.at_least("area under the curve of the best figure", best, 0.9),)
        return Report("\n\n".join(texts), bars, figures | {"points": len(rows), "outside": int(bad.sum())})


async def _ramp(job: Job) -> list[Row]:
    """Points of one mix, until the broker is overloaded or gets no more traffic."""
    rows: list[Row] = []
    beyond, offered = 0, FIRST
    async with open_bench() as bench:
        while len(rows) < MOST and beyond < BEYOND:
            row = await _point(bench, job, offered, len(rows))
            if _p95(row) > job["bound_ms"]:  # other work on the machine can only add to latencies
                row = min(row, await _point(bench, job, offered, MOST + len(rows)), key=_p95)
            rows.append(row)
            beyond = beyond + 1 if _p95(row) > job["bound_ms"] else 0
            if row["msgs"] < SHORT * offered:
                break
            offered *= GROWTH
    return rows


async def _point(bench: Bench, job: Job, offered: float, number: int) -> Row:
    topics, publishers, subscribers, size = MIXES[job["mix"]]
    rate = offered / (1 + subscribers) / (topics * publishers)  # of each publisher
    names = [subjects.deliver(f"{PREFIX}.bulk.{topic}") for topic in range(topics)]
    shared: dict[str, Any] = {
        "url": bench.url, **bench.access, "pids": bench.pids, "size_bytes": size, "warm_s": WARM_S,
        "seconds": job["seconds"],
    }  # fmt: skip
    bulk = shared | {
        "name": "trimtab:bulk", "publish": [name for name in names for _ in range(publishers)],
        "rates": [rate] * (topics * publishers), "subscribe": [name for name in names for _ in range(subscribers)],
        "settle_s": 0.2,
    }  # fmt: skip
    probe = subjects.deliver(f"{PREFIX}.probe")
    probes = shared | {
        "name": "trimtab:probes", "source": f"probes-{number}", "publish": [probe], "subscribe": [probe],
        "rates": [PROBES], "publishers": [1], "subscribers": [1], "seed": job["seed"], "wait_s": WAIT_S,
    }  # fmt: skip
    traffic, measured = await asyncio.gather(
        run_load(bulk, LIMIT_S + job["seconds"], "trimtab.lab.profile.bulk"),
        run_load(probes, LIMIT_S + job["seconds"]),
    )
    (latencies,) = measured["latencies_ms"]
    p50, p95, p99 = _percentiles(latencies)
    into, out = traffic["in_msgs"], traffic["out_msgs"]
    machine, own, *broker = traffic["cores"]
    return {
        "offered": offered, "p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "probes": len(latencies),
        "in_msgs": into, "out_msgs": out, "msgs": into + out, "in_bytes": size * into, "out_bytes": size * out,
        "bytes": size * (into + out), "cpu": sum(value for value in broker if not math.isnan(value)),
        "machine": machine, "generator": own,
    }  # fmt: skip


def _percentiles(latencies: list[float | None]) -> list[float | None]:
    """p50, p95 and p99; None where messages are missing."""
    values = np.array([np.inf if value is None else value for value in latencies])
    found = [float(np.percentile(values, q, method="higher")) if len(values) else np.inf for q in (50, 95, 99)]
    return [value if math.isfinite(value) else None for value in found]


def _p95(row: Row) -> float:
    return math.inf if row["p95_ms"] is None else float(row["p95_ms"])


def separation(values: Floats, bad: Any) -> dict[str, float]:
    """How well one threshold tells the bad points from the others.

    ``auc``: the probability that a bad point has a larger value than another one. ``threshold``: that with the fewest
    errors, which are counted as a share of all points.
    """
    if bad.all() or not bad.any():
        return {"auc": math.nan, "threshold": math.nan, "errors": math.nan, "least_bad": math.nan}
    one, other = values[bad][:, None], values[~bad][None]
    auc = float((one > other).mean() + 0.5 * (one == other).mean())
    ordered = np.unique(values)
    cuts = np.concatenate([[0.0], (ordered[1:] + ordered[:-1]) / 2.0, [ordered[-1] * 1.01]])
    errors = ((values[None] > cuts[:, None]) != bad[None]).mean(axis=1)
    at = int(errors.argmin())
    return {
        "auc": auc, "threshold": float(cuts[at]), "errors": float(errors[at]), "least_bad": float(values[bad].min())
    }  # fmt: skip


def crossing(rows: list[Row], name: str, bound_ms: float) -> float | None:
    """The value at which a mix leaves the bound, between its last point inside and the first one outside."""
    ordered = sorted(rows, key=lambda row: float(row["offered"]))
    for before, after in pairwise(ordered):
        if _p95(before) <= bound_ms < _p95(after):
            return math.sqrt(max(before[name], 1e-9) * max(after[name], 1e-9))
    return None


def _about(rows: list[Row], bad: Any) -> str:
    return (
        f"{len(rows)} points of {len(grouped(rows, lambda row: row['mix']))} mixes of traffic on a real broker (a "
        f"nats-server with its agent) that shares this machine with the load. At {int(bad.sum())} of them, p95 is "
        f"above the bound of {rows[0]['bound_ms']:g} ms. A process of its own measures the latency of {PROBES:g} "
        "messages/s "
        "of the mix's size; a point outside the bound is measured twice, and the better one counts. Traffic is "
        "counted as it was sent and received, not as it was offered. The area under the "
        "curve is the probability that a figure is larger at a point outside the bound than at one inside; the errors "
        "are the share of points that the best threshold tells wrong. `spread` is the largest value over the least at "
        "which the mixes leave the bound: 1 if the threshold is the same for all of them."
    )


def _crossings(rows: list[Row], name: str) -> list[float]:
    mixes = grouped(rows, lambda row: (row["mix"], row["seed"])).values()
    found = (crossing(part, name, rows[0]["bound_ms"]) for part in mixes)
    return [value for value in found if value is not None and value > 1e-3]


def _table(rows: list[Row], bad: Any, found: dict[str, dict[str, float]], order: list[str]) -> str:
    lines = []
    for name in order:
        at = _crossings(rows, name)
        spread = f"{max(at) / min(at):.1f}" if at else "-"
        values = found[name]
        lines.append(
            (CANDIDATES[name], f"{values['auc']:.3f}", _short(values["threshold"]), f"{values['errors']:.1%}",
             _short(values["least_bad"]), spread)
        )  # fmt: skip
    return markdown_table(
        ["figure", "area under the curve", "best threshold", "errors", "least value outside", "spread"], lines
    )


def _advice(rows: list[Row], bad: Any, found: dict[str, dict[str, float]]) -> str:
    best = max(found, key=lambda name: (found[name]["auc"], -found[name]["errors"]))
    limit, lowest = found[LIMIT], min(_crossings(rows, LIMIT), default=math.nan)
    return (
        f"The best figure here is **{CANDIDATES[best]}**: above {_short(found[best]['threshold'])}, p95 is out of "
        f"bound ({found[best]['errors']:.1%} errors). `[control] messages` limits messages in + out: "
        f"**{_rounded(limit['threshold']):.0f}** is the threshold with the fewest errors on this machine "
        f"({limit['errors']:.1%}), and {_rounded(lowest):.0f} the rate at which the first mix leaves the bound."
    )


def _rounded(value: float) -> float:
    """Two digits."""
    if not math.isfinite(value) or value <= 0.0:
        return value
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(value / step) * step


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.3g}"


def _draw(rows: list[Row], bad: Any, found: dict[str, dict[str, float]], out: Path) -> None:
    """A panel per figure: p95 of every point, a colour per mix, with the best threshold."""
    from trimtab.lab import plots

    sheet, panels = plots.figure(2, 4, width=3.6, height=2.9)
    bound_ms = rows[0]["bound_ms"]
    top = 4.0 * max([bound_ms, *(row["p95_ms"] for row in rows if row["p95_ms"] is not None)])
    mixes = grouped(rows, lambda row: row["mix"])
    for panel, (name, text) in zip(panels.flat, CANDIDATES.items(), strict=False):
        for mix, part in mixes.items():
            x = [max(row[name], 1e-3) for row in part]
            panel.plot(x, [min(_p95(row), top) for row in part], ".-", markersize=5, linewidth=0.7, label=mix)
        panel.axhline(bound_ms, color="black", linestyle="--", linewidth=0.8)
        panel.axvline(max(found[name]["threshold"], 1e-3), color="black", linewidth=0.8)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_title(f"{text}: area {found[name]['auc']:.3f}", fontsize=8)
        panel.set_ylabel("p95, ms", fontsize=8)
    handles, labels = panels[0][0].get_legend_handles_labels()
    panels[1][3].set_axis_off()
    panels[1][3].legend(handles, labels, loc="center", fontsize=7)
    plots.save(sheet, out / "overload.png")
