"""Khare et al. (SEC'18), Figure 1: what the p90 latency of a topic depends on, on the simulated broker of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.lab.experiment import Bar, Job, Report, Row, markdown_table, select
from trimtab.lab.worlds.colocation import R_MAX
from trimtab.model.hardware import PAPER
from trimtab.predict.accuracy import BOUND_MS
from trimtab.predict.simulator import Hosted, simulate

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

SUBSCRIBERS: Final = (1, 40, 80, 120, 160, 200, 240)  # 240: the most taxis in a region
INTERVALS_MS: Final = (10, 20, 30, 40, 50)
MANY: Final = 200  # subscribers of the foreground topic in 1b
BESIDE_B: Final = range(7)  # topics of 10 messages/s and 50 ms; six of them saturate the cores
PRINTED_B_MS: Final = {0: 72.0, 6: 180.0}
BESIDE_D: Final = {0: 38, 7: 15, 11: 8}  # background topics -> printed threshold, messages/s
RUNS_D: Final = 3  # of each rate; the threshold is that of the median
BEYOND: Final = 3  # rates above the threshold that are drawn too
PANELS: Final = ("a", "b", "c", "d")
LABELS: Final = {
    "a": ("subscribers", "a: a topic alone, one message/s"), "b": ("background topics", "b: 200 subscribers, 50 ms"),
    "c": ("messages/s", "c: a topic alone"), "d": ("messages/s", "d: 20 ms, beside random topics"),
}  # fmt: skip


class LatencySensitivity:
    title = "Sensitivity of latency (Khare et al., Figure 1)"
    seeds = 25
    timed = False

    def jobs(self, seeds: int) -> list[Job]:
        return [{"panel": panel, "seed": seed} for panel in PANELS for seed in range(seeds)]

    def run(self, job: Job) -> list[Row]:
        return {"a": _subscribers, "b": _background, "c": _rates, "d": _thresholds}[job["panel"]](job["seed"])

    def report(self, rows: list[Row], out: Path) -> Report:
        _draw(rows, out / "sensitivity.png")
        highest = {ms: _highest(rows, ms) for ms in R_MAX}
        thresholds = {
            beside: float(np.median([row["x"] for row in select(rows, panel="d", series=beside, highest=True)]))
            for beside in BESIDE_D
        }
        saturated = {count: _p90(rows, "b", 50, count) for count in BESIDE_B}
        slowest = max(_p90(rows, "a", ms, 240) - _p90(rows, "a", ms, 1) for ms in INTERVALS_MS)
        bars = (
            *(Bar(f"1c: highest rate at {ms} ms = {R_MAX[ms]}", highest[ms], highest[ms] == R_MAX[ms]) for ms in R_MAX),
            *(
                Bar.at_most(f"1d: |threshold beside {beside} topics - {printed}|", abs(thresholds[beside] - printed), 1)
                for beside, printed in BESIDE_D.items()
            ),
            *(
                Bar.at_most(
                    f"1b: |p90 beside {count} topics / {printed:g} ms - 1|", abs(saturated[count] / printed - 1), 0.05
                )
                for count, printed in PRINTED_B_MS.items()
            ),
            Bar.at_most("1a: p90 added by 240 subscribers, ms", slowest, 10.0),
        )
        table = markdown_table(
            ["", "printed", "here"],
            [
                *((f"1c: messages/s that keep one second, {ms} ms", R_MAX[ms], f"{highest[ms]:g}") for ms in R_MAX),
                *((f"1d: threshold beside {n} topics", BESIDE_D[n], f"{thresholds[n]:g}") for n in BESIDE_D),
                *((f"1b: p90 beside {n} topics, ms", f"{PRINTED_B_MS[n]:g}", f"{saturated[n]:.0f}")
                  for n in PRINTED_B_MS),
            ],
        )  # fmt: skip
        text = (
            "Figure 1 on the simulated broker. Thresholds of 1d are medians over draws of the background topics.\n\n"
            f"{table}\n\n![p90 by subscribers, background topics and rates](sensitivity.png)"
        )
        figures = {"highest": highest, "thresholds": thresholds, "saturated_ms": saturated}
        return Report(text, bars, figures)


def _row(panel: str, series: int, x: int, p90: float, *, highest: bool = False) -> Row:
    assert panel in PANELS
    return {"series": series, "x": x, "p90_ms": p90, "highest": highest}


def _p90_of(topics: list[tuple[float, float]], seed: tuple[int, ...], subscribers: int = 1) -> float:
    """Of the first topic; topics are pairs of rate and processing time. All others have one subscriber."""
    rate, processing = (np.array(column, np.float64) for column in zip(*topics, strict=True))
    counts = np.ones(len(topics), np.int64)
    counts[0] = subscribers
    return float(simulate(PAPER, Hosted.of(rate, processing, subscribers=counts), seed=seed).p90_ms[0])


def _subscribers(seed: int) -> list[Row]:
    return [
        _row("a", ms, count, _p90_of([(1, ms)], (seed, 0, ms, count), count))
        for ms in INTERVALS_MS
        for count in SUBSCRIBERS
    ]  # fmt: skip


def _background(seed: int) -> list[Row]:
    return [
        _row("b", 50, count, _p90_of([(1, 50), *[(10, 50)] * count], (seed, 1, count), MANY)) for count in BESIDE_B
    ]  # fmt: skip


def _rates(seed: int) -> list[Row]:
    return [
        _row("c", ms, rate, _p90_of([(rate, ms)], (seed, 2, ms, rate)))
        for ms, highest in R_MAX.items()
        for rate in sorted({*range(1, highest, 3), *range(highest - 2, highest + 1 + BEYOND)})
    ]


def _thresholds(seed: int) -> list[Row]:
    """Rates in rising order, until some above the first one at which the median run misses the bound."""
    rows = []
    for beside in BESIDE_D:
        rng = np.random.default_rng((seed, beside))
        kinds = rng.choice(list(R_MAX), beside).tolist()
        others = [(float(rng.integers(1, R_MAX[kind] + 1)), float(kind)) for kind in kinds]
        below, rate = True, 0
        found: list[float] = []
        while below or rate < len(found) - 1 + BEYOND:
            rate += 1
            topics = [(float(rate), 20.0), *others]
            p90 = float(np.median([_p90_of(topics, (seed, 3, beside, rate, run)) for run in range(RUNS_D)]))
            below = below and p90 <= BOUND_MS
            if below:
                found.append(p90)
            rows.append(_row("d", beside, rate, p90, highest=False))
        at = len(rows) - rate + len(found) - 1  # the last rate below the bound, or the first rate if there is none
        rows[max(at, len(rows) - rate)]["highest"] = True
    return rows


def _p90(rows: list[Row], panel: str, series: int, x: int) -> float:
    return float(np.mean([row["p90_ms"] for row in select(rows, panel=panel, series=series, x=x)]))


def _highest(rows: list[Row], ms: int) -> float:
    """The highest rate up to which the median run keeps the bound."""
    rates = sorted({row["x"] for row in select(rows, panel="c", series=ms)})
    kept = 0
    for rate in rates:
        if np.median([row["p90_ms"] for row in select(rows, panel="c", series=ms, x=rate)]) > BOUND_MS:
            break
        kept = rate
    return float(kept)


def _draw(rows: list[Row], path: Path) -> None:
    from trimtab.lab import plots

    sheet, panels = plots.figure(2, 2)
    for panel, name in zip(panels.ravel(), PANELS, strict=True):
        _draw_panel(panel, select(rows, panel=name), name)
    plots.save(sheet, path)


def _draw_panel(panel: Axes, rows: list[Row], name: str) -> None:
    for series in sorted({row["series"] for row in rows}):
        of_series = select(rows, series=series)
        xs = sorted({row["x"] for row in of_series})
        if name == "d":  # where at least half of the draws of background topics are still there
            draws = len({row["seed"] for row in of_series})
            xs = [x for x in xs if 2 * len(select(of_series, x=x)) >= draws]
        middle = [float(np.median([row["p90_ms"] for row in select(of_series, x=x)])) for x in xs]
        panel.plot(xs, middle, marker=".", label=f"{series} topics beside" if name == "d" else f"{series} ms")
    panel.set_xlabel(LABELS[name][0])
    panel.set_ylabel("p90, ms")
    panel.set_title(LABELS[name][1], fontsize=9)
    if name == "b":
        panel.plot(list(PRINTED_B_MS), list(PRINTED_B_MS.values()), "k*", label="printed")
    if name in ("c", "d"):
        panel.set_yscale("log")
        panel.axhline(BOUND_MS, color="black", linewidth=0.8, linestyle="--")
        printed = [(ms, rate) for ms, rate in R_MAX.items()] if name == "c" else list(BESIDE_D.items())
        panel.plot([rate for _, rate in printed], [BOUND_MS] * len(printed), "k*", label="printed")
    panel.legend(fontsize=7)
