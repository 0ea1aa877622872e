"""Processing at a live broker: Khare's sensitivity analysis (SEC'18, IV-B, Figure 1a-1d) on a machine of two cores.

Every point has its own fleet of one broker. Each publisher sends one message a second, at a random phase, and does not
wait for replies. Latency is the time from sending to delivery. Both ends are in this process, hence on one clock.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.fleet import tasks
from trimtab.lab.experiment import Bar, Job, Report, Row, grouped, markdown_table, select
from trimtab.lab.experiments.processing_trial import MIDDLE_MS, SIZE_BYTES, WAIT_S, WARM_S, Trial

if TYPE_CHECKING:
    from pathlib import Path

MEASURE_S: Final = {"a": 8.0, "b": 8.0, "c": 6.0, "d": 6.0}  # longer in panels with one message a second

INTERVALS_MS: Final = (10, 20, 40)  # CPU time per message
SUBSCRIBERS: Final = (1, 80, 160, 240)  # 240: the most taxis in one region of the paper's data
MANY: Final = 200  # subscribers in 1b
BACKGROUND_B: Final = (0, 2, 4, 6, 8, 10)  # topics in 1b, 0.2 cores each
BACKGROUND_D: Final = (2, 4)
LOADS: Final = (0.2, 0.5, 0.7, 0.9, 1.2)  # rates in 1c, as shares of what one worker can process
RATES_D: Final = (5, 15, 25, 35, 45)
STEADY: Final = 10.0  # limit of p90, in processing intervals, below which the queue does not grow

# The paper's thresholds on four cores, by interval and background topics: from IV-B, and from VI for 10 and 40 ms.
PAPER: Final = {(10, 0): "78", (20, 0): "38", (40, 0): "20", (20, 2): "15 (with 7)", (20, 4): "8 (with 11)"}
# panel -> (column that has one value per curve, column of the x axis)
AXES: Final = {
    "a": ("ms", "subscribers"), "b": ("ms", "background"), "c": ("ms", "rate"), "d": ("background", "rate"),
}  # fmt: skip


class Processing:
    title = "Processing at a live broker: subscribers, rates, background load"
    seeds = 1
    timed = True

    def jobs(self, seeds: int) -> list[Job]:
        points = [
            *(_point("a", ms=ms, subscribers=count) for ms in INTERVALS_MS for count in SUBSCRIBERS),
            *(_point("b", subscribers=MANY, background=count) for count in BACKGROUND_B),
            *(_point("c", ms=ms, rate=round(load * 1000 / ms)) for ms in INTERVALS_MS for load in LOADS),
            *(_point("d", rate=rate, background=count) for count in BACKGROUND_D for rate in RATES_D),
        ]
        return [
            point | {"seconds": MEASURE_S[point["panel"]], "seed": seed} for seed in range(seeds) for point in points
        ]

    def run(self, job: Job) -> list[Row]:
        series, x = AXES[job["panel"]]
        return [{"series": job[series], "x": job[x]} | tasks.run(Trial(job).run())]

    def report(self, rows: list[Row], out: Path) -> Report:
        curves = _curves(rows)
        thresholds = {(curve[0]["ms"], curve[0]["background"]): _threshold(curve) for curve in _by_rate(curves)}
        most = max((background for ms, background in thresholds if ms == MIDDLE_MS), default=0)
        alone, crowded = thresholds.get((MIDDLE_MS, 0), 0.0), thresholds.get((MIDDLE_MS, most), 0.0)
        below = select(rows, panel="a")
        below += [r for r in rows if r["panel"] in "cd" and r["rate"] <= thresholds[r["ms"], r["background"]]]
        share = min((r["delivered"] / r["expected"] for r in below), default=math.nan)
        fan_out = _rise(curves.get(("a", INTERVALS_MS[0]), []))
        bars = (
            Bar.at_most(f"added by the most subscribers, {INTERVALS_MS[0]} ms, p90, ms", fan_out, 250),
            Bar.at_least(f"threshold of {MIDDLE_MS} ms alone, messages/s", alone, 0.6 * 1000 / MIDDLE_MS),
            Bar.at_most(f"threshold with {most} background topics, messages/s", crowded, alone),
            Bar.at_least("delivered up to the threshold, least share", share, 1.0),
        )
        _draw(curves, out)
        figures: dict[str, Any] = {
            "thresholds": {f"{ms} ms, {count} background": rate for (ms, count), rate in thresholds.items()},
            "added_by_subscribers_ms": {f"{ms} ms": round(_rise(curves.get(("a", ms), [])), 1) for ms in INTERVALS_MS},
            "p90_ms": {
                f"1{panel}, {series}": {str(r["x"]): round(r["p90_ms"], 1) for r in curve if r["delivered"]}
                for (panel, series), curve in curves.items()
            },
        }
        return Report(_text(rows, curves, thresholds), bars, figures)


def _point(panel: str, *, ms: int = MIDDLE_MS, subscribers: int = 1, rate: int = 1, background: int = 0) -> Job:
    return {"panel": panel, "ms": ms, "subscribers": subscribers, "rate": rate, "background": background}


# The report.

Curves = dict[tuple[str, Any], list[Row]]  # (panel, series) -> a row per point, by x; latencies: medians over seeds


def _curves(rows: list[Row]) -> Curves:
    """The curves of all panels. The curve of 1c's isolated topic is also in 1d."""
    curves: Curves = {}
    for (panel, series, x), points in sorted(grouped(rows, lambda r: (r["panel"], r["series"], r["x"])).items()):
        middle = {name: float(np.median([r[name] for r in points])) for name in points[0] if name.endswith("_ms")}
        curves.setdefault((panel, series), []).append(points[0] | middle | {"x": x})
    if ("c", MIDDLE_MS) in curves:
        curves["d", 0] = curves["c", MIDDLE_MS]
    return dict(sorted(curves.items()))


def _by_rate(curves: Curves) -> list[list[Row]]:
    return [curve for (panel, series), curve in curves.items() if panel == "c" or (panel == "d" and series)]


def _threshold(curve: list[Row]) -> float:
    """The highest rate at which the queue does not grow; 0 if it grows at all of them."""
    return float(max((row["x"] for row in curve if row["p90_ms"] < STEADY * row["ms"]), default=0.0))


def _rise(curve: list[Row]) -> float:
    return float(curve[-1]["p90_ms"] - curve[0]["p90_ms"]) if curve else math.nan


def _text(rows: list[Row], curves: Curves, thresholds: dict[tuple[int, int], float]) -> str:
    intro = (
        "Khare et al. (SEC'18, Figure 1) measured a broker of four cores, with other machines for its clients. Here "
        "one machine runs the broker, the processors and the clients. A processor burns CPU time. Messages have "
        f"{SIZE_BYTES // 1024} KB. Every publisher sends one a second and does not wait for replies. Each point has "
        f"its own fleet: {WARM_S:g} s to warm up, then {_spread([r['seconds'] for r in rows])} s measured. Latency is "
        "the time from sending to delivery. p90 is over all deliveries."
    )
    definition = (
        f"A threshold is the highest rate measured at which p90 is below {STEADY:g} times the processing interval. "
        "Beyond it the queue grows as long as messages are published, so a latency there depends more on the time "
        f"measured than on the broker. Messages that have not arrived {WAIT_S:g} s after the last message was sent "
        "count as not delivered and are not in the percentiles. The paper's thresholds are for four cores; those of "
        "10 and 40 ms follow from its model (VI) for a p90 below one second."
    )
    sections = [
        _subscribers_matter(curves),
        _background_matters(curves),
        _rates_matter(curves, thresholds),
        _both(rows, thresholds),
    ]
    parts = [intro, "![latencies](processing.png)", *sections, definition, _table(curves, thresholds)]
    return "\n\n".join(part for part in parts if part)


def _spread(values: list[float]) -> str:
    return " to ".join(f"{value:g}" for value in sorted({min(values), max(values)})) if values else "0"


def _subscribers_matter(curves: Curves) -> str:
    ends = [(ms, curves["a", ms][0], curves["a", ms][-1]) for ms in INTERVALS_MS if ("a", ms) in curves]
    machine = [row["machine_busy"] for ms, *_ in ends for row in curves["a", ms]]
    figures = "; ".join(
        f"with {ms} ms of processing {first['p90_ms']:.0f} ms for {first['x']}, {last['p90_ms']:.0f} ms for {last['x']}"
        for ms, first, last in ends
    )
    if not ends:
        return ""
    return (
        f"**1a, subscribers of an isolated topic.** p90 by number of subscribers: {figures}. The paper finds the "
        "impact very small for sub-second bounds, and 240 subscribers easily sustained. Here the subscribers share one "
        "process, so the latency includes their own work. These points load the machine by a few per cent. It was "
        f"{100 * float(np.mean(machine)):.0f} % busy on average; the difference is the load of other processes."
    )


def _background_matters(curves: Curves) -> str:
    curve = curves.get(("b", MIDDLE_MS))
    if not curve:
        return ""
    first, last = curve[0], curve[-1]
    return (
        f"**1b, background topics.** A topic with {MANY} subscribers and {MIDDLE_MS} ms of processing, beside topics "
        f"of 10 messages/s and {MIDDLE_MS} ms each: p90 goes from {first['p90_ms']:.0f} ms with {first['x']} to "
        f"{last['p90_ms']:.0f} ms with {last['x']} ({100 * (last['p90_ms'] / first['p90_ms'] - 1):+.0f} %), while the "
        f"machine goes from {100 * first['machine_busy']:.0f} to {100 * last['machine_busy']:.0f} % busy. The paper: "
        "from 72 to 180 ms (+147 %), still well below a second with the CPU saturated."
    )


def _rates_matter(curves: Curves, thresholds: dict[tuple[int, int], float]) -> str:
    parts = []
    for ms in INTERVALS_MS:
        if curve := curves.get(("c", ms)):
            marked = {curve[0]["x"], thresholds[ms, 0], curve[-1]["x"]}
            figures = [f"{row['p90_ms']:,.0f} ms at {row['x']}" for row in curve if row["x"] in marked]
            parts.append(f"with {ms} ms of processing {', '.join(figures)}")
    if not parts:
        return ""
    return (
        "**1c, rate of an isolated topic.** p90 at the lowest rate, the threshold and the highest rate: "
        f"{'; '.join(parts)}. The paper finds a linear increase up to the threshold and an explosion beyond it. A "
        "topic's processor is one process, so it cannot pass 1000 / interval messages/s."
    )


def _both(rows: list[Row], thresholds: dict[tuple[int, int], float]) -> str:
    cores = {row["background"]: row["background_cores"] for row in reversed(select(rows, panel="d"))}  # first seed's
    cores = dict(sorted(cores.items()))
    figures = ", ".join(
        f"{thresholds[MIDDLE_MS, count]:g} messages/s with {count} ({demand:.1f} cores of load)"
        for count, demand in cores.items()
    )
    return figures and (
        "**1d, the same beside background topics**, whose rates and intervals are drawn at random. The threshold of "
        f"{MIDDLE_MS} ms: {thresholds.get((MIDDLE_MS, 0), math.nan):g} alone, {figures}. The paper: 38 alone, 15 with "
        "7 and 8 with 11 background topics on four cores."
    )


def _table(curves: Curves, thresholds: dict[tuple[int, int], float]) -> str:
    lines = []
    for curve in _by_rate(curves):
        topic = (curve[0]["ms"], curve[0]["background"])
        over = [row for row in curve if row["x"] > thresholds[topic]]
        lines.append((
            f"{topic[0]} ms, {topic[1]} background topics", f"{1000 / topic[0]:g}", f"{thresholds[topic]:g}",
            f"{over[0]['p90_ms']:,.0f} ms at {over[0]['x']}" if over else "-",
            f"{100 * over[-1]['delivered'] / over[-1]['expected']:.0f} % at {over[-1]['x']}" if over else "-",
            PAPER.get(topic, "-"),
        ))  # fmt: skip
    columns = ["topic", "one worker's limit", "threshold, messages/s", "p90 beyond", "delivered beyond", "paper"]
    return markdown_table(columns, lines)


def _draw(curves: Curves, out: Path) -> None:
    from trimtab.lab import plots

    sheet, panels = plots.figure(2, 2, width=4.6, height=3.2)
    colours = ("#30638e", "#d1495b", "#2e8b57", "#8d6b94")
    titles = {
        "a": ("1a: isolated, one publisher", "subscribers"),
        "b": (f"1b: {MANY} subscribers, {MIDDLE_MS} ms", f"background topics, 10 messages/s of {MIDDLE_MS} ms each"),
        "c": ("1c: isolated, one subscriber", "messages/s (dotted: 1000 / interval)"),
        "d": (f"1d: {MIDDLE_MS} ms beside background topics", "messages/s"),
    }
    line_style: dict[str, Any] = {"marker": "o", "markersize": 3, "linewidth": 1.2}
    for panel, (name, (title, across)) in zip(panels.flat, titles.items(), strict=True):
        panel_curves = [(series, curve) for (letter, series), curve in curves.items() if letter == name]
        for (series, curve), colour in zip(panel_curves, colours, strict=False):
            x = [row["x"] for row in curve]
            if name == "b":
                for q, style in ((99, "--"), (90, "-"), (50, ":")):
                    panel.plot(x, [row[f"p{q}_ms"] for row in curve], style, label=f"p{q}", color=colour, **line_style)
                continue
            label = f"{series} background" if name == "d" else f"{series} ms"
            panel.plot(x, [row["p90_ms"] for row in curve], label=label, color=colour, **line_style)
            if name == "c":
                panel.axvline(1000 / series, color=colour, linestyle=":", linewidth=0.8)
        if name in "cd":
            panel.set_yscale("log")
        else:
            panel.set_ylim(bottom=0)
        panel.set_title(title, fontsize=9)
        panel.set_xlabel(across)
        panel.set_ylabel("latency, ms" if name == "b" else "p90 latency, ms")
        if panel_curves:
            panel.legend(fontsize=8)
    plots.save(sheet, out / "processing.png")
