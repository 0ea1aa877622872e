"""Plots: a common style, and the plot of a comparison."""

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

    from trimtab.lab.answer import Answer
    from trimtab.lab.comparison import Comparison
    from trimtab.model.problem import Problem

# Trimtab's own policy has the most visible colour. Each baseline has one colour and marker in all plots.
COLOURS: Final = {
    "trim": "#d1495b",
    "gs": "#30638e",
    "gs-strict": "#7fa7c9",
    "mkpbs": "#2e8b57",
    "ilp": "#8d6b94",
    "random": "#9a9a9a",
    "round-robin": "#c4a484",
    "nearest": "#30638e",
    "otos": "#7fa7c9",
    "otos-centroid": "#8d6b94",
    "reloc": "#2e8b57",
    "ldm": "#e08e45",
    "sdm": "#c9b037",
    "gsh": "#30638e",
    "multistage": "#2e8b57",
    "hash": "#9a9a9a",
    "ffd": "#30638e",
    "lfs": "#2e8b57",
    "lfs-ffd": "#e08e45",
    "centroid": "#30638e",
    "all-pairs": "#2e8b57",
    "oracle": "#000000",
}
MARKERS: Final = {
    "trim": "o", "gs": "s", "gs-strict": "D", "mkpbs": "^", "ilp": "v", "random": "x", "nearest": "s", "otos": "D",
    "otos-centroid": "v", "reloc": "^", "ffd": "s", "lfs": "^", "lfs-ffd": "D",
    "centroid": "s", "all-pairs": "^", "oracle": "*", "hash": "x",
}  # fmt: skip
AXES: Final = {
    "max_load": "maximum load, data/s", "delay": "mean delay, ms", "brokers_used": "brokers used",
    "violating_pairs": "pairs out of bound",
}  # fmt: skip
DOTS: Final = 20_000  # most clients on a map
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
    """A figure with rows and columns of panels; ``width`` and ``height`` are those of a panel."""
    plt.style.use(STYLE)
    sheet, panels = plt.subplots(rows, columns, figsize=(width * columns, height * rows), squeeze=False)
    return sheet, panels


def save(sheet: Figure, path: Path) -> None:
    sheet.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    sheet.savefig(path, bbox_inches="tight")
    plt.close(sheet)


def line(panel: Axes, x: Any, y: Any, policy: str, **more: Any) -> None:
    short = policy.split("/")[-1]
    look: dict[str, Any] = {"color": COLOURS.get(short, "#555555"), "marker": MARKERS.get(short, "."), "markersize": 4}
    panel.plot(x, y, **({"label": short} | look | more))


def draw_comparison(comparison: Comparison, title: str) -> Figure:
    """Draw the plot that fits the comparison's question."""
    return (_draw_links if comparison.bound.figure == "received" else _draw_homes)(comparison, title)


def _draw_homes(comparison: Comparison, title: str) -> Figure:
    """Left: the figure under each policy, against the bound. Then the maps of two policies."""
    answers = _mapped(comparison)
    sheet, panels = figure(1, 1 + len(answers), width=4.8, height=4.4)
    _draw_bars(panels[0][0], comparison)
    for panel, answer in zip(panels[0][1:], answers, strict=True):
        _draw_map(panel, comparison.problem, answer)
    sheet.suptitle(title, fontsize=10, parse_math=False)
    return sheet


def _mapped(comparison: Comparison) -> list[Answer]:
    """The answers to draw as maps: the best of the others, then the last one. Empty without positions.

    The last answer is that of trim, unless the policies were given in another order.
    """
    if not (_placed(comparison, "x_km") or _placed(comparison, "lat")):
        return []
    *others, last = comparison.answers
    sign = -1.0 if comparison.bound.more_is_better else 1.0
    return [*sorted(others, key=lambda answer: sign * answer.achieved)[:1], last]


def _placed(comparison: Comparison, name: str) -> bool:
    load = comparison.problem.workload
    return name in load.clients.present() and name in load.brokers.present()


def _draw_bars(panel: Axes, comparison: Comparison) -> None:
    best = comparison.bound
    names = [answer.policy.split("/")[-1] for answer in comparison.answers]
    values = np.array([answer.judgement.figure(best.figure) for answer in comparison.answers])
    at = np.arange(len(names))[::-1]
    limit = 4.0 * max(best.value, float(np.median(values))) or float(values.max(initial=0.0))
    shown = np.minimum(values, limit)  # one bad policy must not make all other bars too short to compare
    panel.barh(at, shown, color=[COLOURS.get(name, "#555555") for name in names], height=0.65)
    panel.axvline(best.value, color="black", linewidth=1, linestyle="--", label=f"lower bound ({best.kind})")
    for y, value, drawn in zip(at, values, shown, strict=True):
        label = f" {value:,.0f}" if value >= 1000 else f" {value:.3g}"
        panel.text(drawn, y, f" ≫{label} (cut off)" if value > drawn else label, va="center", fontsize=8)
    panel.set_yticks(at, names)
    panel.set_xlim(0.0, (1.6 if (values > shown).any() else 1.25) * float(shown.max(initial=0.0) or 1.0))
    panel.set_xlabel(AXES[best.figure])
    panel.xaxis.set_major_locator(MaxNLocator(4))
    panel.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value >= 10 else f"{value:g}")
    panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=8)
    panel.grid(axis="y", visible=False)


def _draw_map(panel: Axes, problem: Problem, answer: Answer) -> None:
    """Clients in the colour of their home, brokers as large as their load."""
    load, home = problem.workload, answer.placement.broker
    flat = load.clients.x_km is not None and load.brokers.x_km is not None
    names = ("x_km", "y_km") if flat else ("lon", "lat")
    here = np.flatnonzero(home >= 0)
    if len(here) > DOTS:
        here = here[:: len(here) // DOTS + 1]
    colours = plt.get_cmap("tab20")(np.arange(problem.brokers) % 20)
    across, up = (getattr(load.clients, name) for name in names)
    panel.scatter(across[here], up[here], s=5, c=colours[home[here]], linewidths=0, alpha=0.7)
    loads = answer.judgement.load.per_broker
    size = 30.0 + 320.0 * loads / max(float(loads.max(initial=0.0)), 1e-300)
    across, up = (getattr(load.brokers, name) for name in names)
    panel.scatter(across, up, s=size, c=colours, edgecolors="black", linewidths=1.0, zorder=3)
    panel.set_xlabel("km" if flat else "longitude")
    panel.set_ylabel("km" if flat else "latitude")
    panel.set_aspect("equal" if flat else "auto", adjustable="datalim")
    moved = answer.judgement.moves
    note = f", {moved.units:,} moved" if moved else ""
    panel.set_title(f"{answer.policy}: spread {answer.judgement.load.cov:.3f}{note}", fontsize=9)


def _draw_links(comparison: Comparison, title: str) -> Figure:
    """Left: data received under each policy, against the bound. Right: the load of each broker."""
    sheet, panels = figure(1, 2, width=5.2, height=3.6)
    left, right = panels[0]
    offered = max(a.judgement.offered for a in comparison.answers) or 1.0
    names = [a.policy.split("/")[-1] for a in comparison.answers]
    shares = np.array([100 * a.judgement.received_share for a in comparison.answers])
    limit = 100 * comparison.bound.value / offered
    at = np.arange(len(names))[::-1]
    left.barh(at, shares, color=[COLOURS.get(n, "#555555") for n in names], height=0.65)
    left.axvline(limit, color="black", linewidth=1, linestyle="--", label=f"upper bound ({comparison.bound.kind})")
    low = shares.min() - 0.35 * max(limit - shares.min(), 0.5)  # zoomed in, since small differences matter
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
