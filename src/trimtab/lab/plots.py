"""Plots: one look for all of them, and the drawing of a comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import matplotlib

matplotlib.use("Agg")  # files only; no display is ever needed

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from trimtab.lab.comparison import Comparison

# Ours stands out; the baselines keep one colour and marker each in every plot.
COLOURS: Final = {
    "trim": "#d1495b",
    "gs": "#30638e",
    "gs-strict": "#7fa7c9",
    "mkpbs": "#2e8b57",
    "ilp": "#8d6b94",
}
MARKERS: Final = {"trim": "o", "gs": "s", "gs-strict": "D", "mkpbs": "^", "ilp": "v"}
STYLE: Final[dict[str, Any]] = {
    "figure.dpi": 130,
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def figure(rows: int, columns: int, *, width: float = 4.2, height: float = 3.0) -> tuple[Figure, np.ndarray[Any, Any]]:
    """A sheet of panels."""
    plt.style.use(STYLE)
    sheet, panels = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
    return sheet, panels


def save(sheet: Figure, path: Path) -> None:
    sheet.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(path)
    plt.close(sheet)


def line(panel: Axes, x: Any, y: Any, policy: str, **more: Any) -> None:
    short = policy.split("/")[-1]
    look: dict[str, Any] = {"color": COLOURS.get(short, "#555555"), "marker": MARKERS.get(short, "."), "markersize": 4}
    panel.plot(x, y, **({"label": short} | look | more))


def draw_comparison(comparison: Comparison, title: str) -> Figure:
    """Left: what arrives under each policy, against the bound. Right: how full each broker is."""
    sheet, panels = figure(1, 2, width=5.2, height=3.6)
    left, right = panels[0]
    offered = max(a.judgement.offered for a in comparison.answers) or 1.0
    names = [a.policy.split("/")[-1] for a in comparison.answers]
    shares = np.array([100 * a.judgement.received_share for a in comparison.answers])
    limit = 100 * comparison.bound.value / offered
    at = np.arange(len(names))[::-1]
    left.barh(at, shares, color=[COLOURS.get(n, "#555555") for n in names], height=0.65)
    left.axvline(limit, color="black", linewidth=1, linestyle="--", label=f"upper bound ({comparison.bound.kind})")
    low = shares.min() - 0.35 * max(limit - shares.min(), 0.5)  # zoomed in: differences are small and matter
    high = limit + 0.55 * (limit - low)
    left.set_xlim(max(low, 0.0), high)
    for y, share, answer in zip(at, shares, comparison.answers, strict=True):
        mark = " (optimal)" if comparison.bound.proves(answer.judgement.received) else ""
        left.text(max(share, limit), y, f"  {share:.2f} %{mark}", va="center", fontsize=8)
    left.set_yticks(at, names)
    left.set_xlabel("data received, % of what is offered (axis cut)")
    left.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)
    left.grid(axis="y", visible=False)

    bandwidth = comparison.problem.bandwidth
    usable = np.isfinite(bandwidth) & (bandwidth > 0)
    for answer, name in zip(comparison.answers, names, strict=True):
        fill = np.sort(100 * answer.judgement.load.per_broker[usable] / bandwidth[usable])[::-1]
        look: dict[str, Any] = {"linewidth": 1.4, "color": COLOURS.get(name, "#555555"), "label": name}
        right.plot(np.arange(1, len(fill) + 1), fill, drawstyle="steps-mid", **look)
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_xlabel("broker, fullest first")
    right.set_ylabel("load, % of bandwidth")
    right.legend(fontsize=8, ncols=2)
    sheet.suptitle(title, fontsize=10, parse_math=False)  # a path may hold a dollar sign
    return sheet
