"""Rows and plots of live runs with a latency bound: shares inside, excursions, and latency over time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.lab.experiment import markdown_table, select
from trimtab.lab.tape import Excursion, excursions
from trimtab.migrate.move import Phase

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from trimtab.fleet.operator.tables import MoveRow
    from trimtab.lab.experiment import Row
    from trimtab.lab.tape import Deliveries

MOST: Final = 4_000  # points of a group's curve
PANELS: Final = 8  # of a picture; with more groups, those with most moves are drawn
SECONDS: Final = 5.0  # within which an excursion must be over


@dataclass(slots=True)
class Played:
    """What happened during a run. All times are in seconds since 1970."""

    changes: dict[str, list[float]]  # by group
    began: float = 0.0
    ended: float = 0.0
    switches: list[tuple[float, str, str]] = field(default_factory=list)  # of routes: time, topic, broker
    late_ms: list[float] = field(default_factory=list)  # of the process that publishes and receives
    records: list[MoveRow] = field(default_factory=list)
    hub_away: tuple[float, float] | None = None


def rows_of(
    heard: Deliveries, played: Played, bound_ms: float, shown: dict[str, str], group_of: Callable[[str], str]
) -> list[Row]:
    """A row with totals, and one for each group."""
    began, ended = played.began, played.ended
    topics_of: dict[str, list[str]] = {group: [] for group in shown}
    for topic in heard.topics:
        topics_of[group_of(topic)].append(topic)
    switches = [switch for switch in played.switches if switch[0] >= began]
    rows: list[Row] = []
    found: list[Excursion] = []
    strays = 0
    for group, topics in topics_of.items():
        sent_at, ms = heard.of(topics)
        changes = [at for at in played.changes[group] if at < ended]
        own, stray = excursions(changes, ended, sent_at, ms, bound_ms)
        found += own
        strays += stray
        at, drawn = thinned(*heard.of([shown[group]]))
        moves = [moved for moved, topic, _ in switches if topic == shown[group]]
        rows.append(
            {
                "row": "group", "group": group, "at": _since(at, began), "ms": [round(float(v), 2) for v in drawn],
                "changed_at": _since(changes, began), "lasted_s": [round(one.lasted_s, 3) for one in own],
                "moved_at": _since(moves, began), "inside": share(ms, bound_ms), "deliveries": len(ms),
            }
        )  # fmt: skip
    ms, lasted = heard.ms, [one.lasted_s for one in found]
    away = played.hub_away
    during = heard.ms[(heard.sent_at >= away[0]) & (heard.sent_at < away[1])] if away else np.zeros(0)
    total: Row = {
        "row": "total", "bound_ms": bound_ms, "messages": heard.messages, "deliveries": len(ms), "lost": heard.lost,
        "doubled": heard.doubled, "reordered": heard.reordered, "inside": share(ms, bound_ms),
        "p50_ms": _percentile(ms, 50), "p99_ms": _percentile(ms, 99), "changes": len(lasted),
        "longest_s": max(lasted, default=0.0), "median_s": float(np.median(lasted)) if lasted else 0.0,
        "strays": strays, "switches": len(switches), "moves": len(played.records),
        "rolled_back": sum(move.phase == Phase.ROLLED_BACK for move in played.records),
        "late_p99_ms": _percentile(np.array(played.late_ms), 99), "late_max_ms": max(played.late_ms, default=0.0),
        "away_at": _since(away, began) if away else [], "away_inside": share(during, bound_ms) if away else None,
        "seconds_run": ended - began,
    }  # fmt: skip
    return [total, *rows]


def share(ms: Any, bound_ms: float) -> float:
    """Share of deliveries inside the bound; a lost message is outside."""
    return float((ms <= bound_ms).mean()) if len(ms) else float("nan")


def thinned(sent_at: Any, ms: Any) -> tuple[Any, Any]:
    """The slowest delivery of every interval, at most ``MOST`` of them; a lost message is left out."""
    there = np.isfinite(ms)
    sent_at, ms = sent_at[there], ms[there]
    if len(ms) <= MOST:
        return sent_at, ms
    slot = np.minimum(((sent_at - sent_at[0]) / (sent_at[-1] - sent_at[0]) * MOST).astype(np.int64), MOST - 1)
    order = np.lexsort((-ms, slot))
    _, first = np.unique(slot[order], return_index=True)
    chosen = np.sort(order[first])
    return sent_at[chosen], ms[chosen]


def _since(times: Any, began: float) -> list[float]:
    return [round(float(at) - began, 3) for at in times]


def _percentile(values: Any, q: float) -> float:
    finite = values[np.isfinite(values)]
    return float(np.percentile(finite, q)) if len(finite) else float("nan")


def label(row: Row) -> str:
    parts = [row["policy"]]
    parts += [word for knob, word in (("still", "nobody moves"), ("kill_hub", "hub killed")) if row[knob]]
    return ", ".join(parts)


def table(rows: list[Row]) -> str:
    columns = [
        "run", "seed", "deliveries", "lost", "doubled", "reordered", "inside", "p50 ms", "p99 ms", "changes",
        "longest excursion s", "median s", "outside otherwise", "moves", "late p99 ms",
    ]  # fmt: skip
    return markdown_table(
        columns,
        (
            (label(row), row["seed"], f"{row['deliveries']:,}", row["lost"], row["doubled"], row["reordered"],
             f"{row['inside']:.2%}", f"{row['p50_ms']:.1f}", f"{row['p99_ms']:.1f}", row["changes"],
             f"{row['longest_s']:.1f}", f"{row['median_s']:.1f}", row["strays"], row["switches"],
             f"{row['late_p99_ms']:.1f}")
            for row in select(rows, row="total")
        ),
    )  # fmt: skip


def figures(rows: list[Row]) -> dict[str, float]:
    return {
        f"{row['policy']} seed {row['seed']}: {what}": row[what]
        for row in select(rows, row="total")
        for what in ("inside", "lost", "doubled", "reordered", "longest_s", "switches", "deliveries", "changes")
    }


def pictures(rows: list[Row], out: Path, name: str, what: str) -> list[str]:
    """Draw latency over time for every run; returns Markdown images."""
    texts = []
    for total in select(rows, row="total"):
        run = {knob: total[knob] for knob in ("policy", "still", "kill_hub", "seed")}
        groups = select(rows, row="group", **run)
        variant = "".join(f"-{knob.replace('_', '-')}" for knob in ("still", "kill_hub") if total[knob])
        picture = f"{name}-{total['policy']}{variant}-{total['seed']}.png"
        draw(groups, total, out / picture, what)
        texts.append(f"**{label(total)}**\n\n![{label(total)}]({picture})")
    return texts


def draw(groups: list[Row], total: Row, path: Path, what: str) -> None:
    """A panel per group: latency of its topic over time, with changes and moves marked."""
    from trimtab.lab import plots

    drawn = groups if len(groups) <= PANELS else sorted(groups, key=lambda group: -len(group["moved_at"]))[:PANELS]
    sheet, panels = plots.figure((len(drawn) + 1) // 2, min(2, len(drawn)), width=5.6, height=1.7)
    bound = total["bound_ms"]
    top = 1.1 * max([2.0 * bound, *(min(max(group["ms"], default=0.0), 6.0 * bound) for group in drawn)])
    for panel, group in zip(panels.flat, drawn, strict=False):
        for at in total["away_at"][:1]:
            panel.axvspan(at, total["away_at"][1], color="#f3d9a4", linewidth=0, label="hub away")
        panel.plot(group["at"], group["ms"], ".", markersize=2, color="#30638e", label="latency")
        panel.axhline(bound, color="black", linestyle="--", linewidth=0.8, label="bound")
        for number, at in enumerate(group["changed_at"]):
            panel.axvline(at, color="#d1495b", linewidth=0.8, label=what if not number else None)
        moved = group["moved_at"]
        panel.plot(moved, [0.97 * top] * len(moved), "v", markersize=5, color="#2e8b57", label="topic moved")
        panel.set_ylim(0.0, top)
        panel.set_xlim(0.0, total["seconds_run"])
        panel.set_title(f"{group['group']}: {group['inside']:.2%} inside", fontsize=8)
        panel.set_ylabel("ms", fontsize=8)
    for panel in panels.flat[len(drawn) :]:
        panel.set_visible(False)
    panels[-1][0].set_xlabel("time, s")
    handles: dict[str, Any] = {}
    for panel in panels.flat:
        for handle, text in zip(*panel.get_legend_handles_labels(), strict=True):
            handles.setdefault(text, handle)
    sheet.legend(handles.values(), handles, loc="lower center", ncols=5, fontsize=8, bbox_to_anchor=(0.5, 1.0))
    plots.save(sheet, path)
