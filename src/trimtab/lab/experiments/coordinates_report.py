"""The report of the experiment ``coordinates``: tables, plots and requirements."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.lab.experiment import Bar, Report, Row, grouped, markdown_table, mean, select

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matplotlib.axes import Axes

MODELS: Final = ("serf", "robust")
LOOKS: Final = {"serf": "-s", "robust": "-o"}
COLOURS: Final = {"serf": "#30638e", "robust": "#d1495b"}
DASHES: Final = {"median": "-", "mean": "--", "p95": ":"}
VARIED: Final = 16  # nodes of the star when the round-trip time varies
MIDDLE_MS: Final = 50.0
STAR_P95: Final = 0.05
MEDIAN, P90 = 0.06, 0.25  # of held-out pairs of a network that a space can represent
NOISY_MEDIAN, NOISY_P90 = 0.08, 0.30
LYING_MEDIAN: Final = 0.10
UPDATE_US: Final = 50.0
REAL: Final = "cities"  # the made-up network that the requirements on real matrices are judged on


def report(rows: list[Row], out: Path) -> Report:
    stars, matrices = select(rows, part="star"), select(rows, part="matrix")
    cpu = {model: mean(rows, "us_per_update", part="cpu", model=model) for model in MODELS}
    _draw_star(stars, out / "figure-3.png")
    _draw_networks(matrices, out / "networks.png")
    networks = [_network_figures(part) for part in grouped(matrices, lambda row: row["network"]).values()]
    text = "\n\n".join([
        "## Figure 3: a star", "All pairs probed, 600 probes of each node, 1 % jitter. Relative errors of all pairs; "
        "the paper prints errors below 3.5 ms, and below 6 % of the round-trip time.",
        _star_table(stars), "![errors by number of nodes and by round-trip time](figure-3.png)",
        "## Networks", "Held-out pairs: neither end probes the other. Relative error, median / 90th percentile, means "
        "over seeds. \"One end\": only the node that probes learns from a probe, as in Serf; \"both\": the probed node "
        "learns too. Serf learns at one end unless the column says otherwise, `robust` at both.",
        _network_table(networks), "![errors of held-out pairs](networks.png)",
        "## Cost", f"CPU time of an update of a live node in pure Python: {cpu['serf']:.1f} us with `serf` (32 peers), "
        f"{cpu['robust']:.1f} us with `robust` (64 peers).",
    ])  # fmt: skip
    files = [network for network in networks if network["file"]]
    figures: dict[str, Any] = {"star": _star_figures(stars), "cpu_us": cpu, "networks": networks}
    if len(files) == 1:
        figures = files[0] | figures
    return Report(text, tuple(_bars(stars, networks, cpu)), figures)


def _bars(stars: list[Row], networks: list[dict[str, Any]], cpu: dict[str, float]) -> Iterator[Bar]:
    worst = max(mean(part, "p95") for part in grouped(select(stars, model="robust"), _star_of).values())
    yield Bar.at_most("star of 4 to 128 nodes: p95 of robust's errors, worst star", worst, STAR_P95)
    yield Bar.at_most("CPU time of a robust update, us", cpu["robust"], UPDATE_US)
    for network in networks:
        name, robust = PurePath(network["network"]).name, network["robust"]
        if network["file"]:
            for figure in ("median", "p90"):
                yield Bar.at_most(
                    f"{name}: {figure} of robust / that of serf", robust[figure] / network["serf"][figure], 1.0
                )
        elif name == REAL:
            yield Bar.at_most(f"{name}: robust, median", robust["median"], MEDIAN)
            yield Bar.at_most(f"{name}: robust, p90", robust["p90"], P90)
            yield Bar.at_most(f"{name}, noise: robust, median", network["noise"]["robust"]["median"], NOISY_MEDIAN)
            yield Bar.at_most(f"{name}, noise: robust, p90", network["noise"]["robust"]["p90"], NOISY_P90)
        if "liars" in network and (name == REAL or not network["file"]):
            lying = max(kind["robust"]["median"] for kind in network["liars"].values())
            yield Bar.at_most(f"{name}, 10 % liars: robust's median, worst kind of lie", lying, LYING_MEDIAN)


def _star_of(row: Row) -> tuple[int, float]:
    return row["nodes"], row["rtt_ms"]


def _star_figures(stars: list[Row]) -> list[dict[str, Any]]:
    """Errors of every star and model, means over seeds."""
    return [
        {"nodes": nodes, "rtt_ms": rtt}
        | {model: {figure: mean(part, figure, model=model) for figure in DASHES} for model in MODELS}
        for (nodes, rtt), part in grouped(stars, _star_of).items()
    ]


def _star_table(stars: list[Row]) -> str:
    lines = [
        (star["nodes"], f"{star['rtt_ms']:g}", *(f"{100 * star[model][f]:.2f}" for model in MODELS for f in DASHES))
        for star in _star_figures(stars)
    ]
    columns = ["nodes", "RTT, ms", *(f"{model}: {figure}, %" for model in MODELS for figure in DASHES)]
    return markdown_table(columns, lines)


def _network_figures(rows: list[Row]) -> dict[str, Any]:
    """One network: the errors of both models in each case, means over seeds."""
    first, cases = rows[0], grouped(rows, lambda row: row["case"])
    figures: dict[str, Any] = {
        "network": first["network"], "file": bool(first["digest"]), "nodes": first["nodes"], "peers": first["peers"],
        "probes": first["updates"], "skipped": first["skipped"], "held_out": first["pairs"],
    }  # fmt: skip
    figures["probes"] = min(row["updates"] for row in rows)
    for case, part in cases.items():
        errors = {
            model: {
                name: mean(part, name, model=model) for name in ("median", "p90", "p95", "probed_median", "probed_p90")
            }
            for model in MODELS
        }
        if case == "plain":
            figures |= errors
        elif case == "other ends":
            figures["ends"] = {"serf_both": errors["serf"], "robust_one": errors["robust"]}
        elif case == "noise":
            figures["noise"] = errors
        else:
            figures.setdefault("liars", {})[case.removeprefix("liars: ")] = errors
    return figures


def _network_table(networks: list[dict[str, Any]]) -> str:
    def cell(errors: dict[str, float] | None) -> str:
        return f"{errors['median']:.3f} / {errors['p90']:.3f}" if errors else ""

    lines = []
    for network in networks:
        noise, liars = network.get("noise", {}), network.get("liars", {})
        worst = [max((kind[model] for kind in liars.values()), key=lambda e: e["median"], default=None)
                 for model in MODELS]  # fmt: skip
        lines.append((
            PurePath(network["network"]).name, network["nodes"], cell(network["serf"]), cell(network["robust"]),
            cell(network["ends"]["serf_both"]), cell(network["ends"]["robust_one"]), cell(noise.get("serf")),
            cell(noise.get("robust")), *(cell(errors) for errors in worst),
        ))  # fmt: skip
    columns = ["network", "nodes", "serf", "robust", "serf, both ends", "robust, one end", "noise: serf",
               "noise: robust", "worst liars: serf", "worst liars: robust"]  # fmt: skip
    return markdown_table(columns, lines)


def _draw_star(stars: list[Row], path: Path) -> None:
    from trimtab.lab import plots

    sheet, panels = plots.figure(1, 2)
    by_nodes, by_rtt = select(stars, rtt_ms=MIDDLE_MS), select(stars, nodes=VARIED)
    _draw_errors(panels[0][0], by_nodes, "nodes")
    panels[0][0].set_xscale("log", base=2)
    sizes = sorted({row["nodes"] for row in by_nodes})
    panels[0][0].set_xticks(sizes, [str(size) for size in sizes])
    panels[0][0].set_xlabel(f"nodes (round-trip time {MIDDLE_MS:g} ms)")
    _draw_errors(panels[0][1], by_rtt, "rtt_ms")
    panels[0][1].set_xlim(left=0)
    panels[0][1].legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.02, 1.0))
    panels[0][1].set_xlabel(f"round-trip time, ms ({VARIED} nodes)")
    plots.save(sheet, path)


def _draw_errors(panel: Axes, rows: list[Row], across: str) -> None:
    for model in MODELS:
        for figure, dashes in DASHES.items():
            by_x = grouped(select(rows, model=model), lambda row: row[across])
            xs = sorted(by_x)
            ys = [100 * mean(by_x[x], figure) for x in xs]
            panel.plot(xs, ys, dashes, marker=LOOKS[model][-1], markersize=3, color=COLOURS[model],
                       label=f"{model}, {figure}")  # fmt: skip
    panel.set_ylim(bottom=0)
    panel.set_ylabel("error, % of the round-trip time")


def _draw_networks(rows: list[Row], path: Path) -> None:
    """Medians as bars and 90th percentiles as thin ones above, of held-out pairs."""
    from trimtab.lab import plots

    plain = grouped(select(rows, case="plain"), lambda row: row["network"])
    sheet, ((panel,),) = plots.figure(1, 1, width=2.5 + 0.9 * len(plain), height=3.2)
    at = np.arange(len(plain))
    for shift, model in ((-0.2, "serf"), (0.2, "robust")):
        medians, highs = ([100 * mean(part, figure, model=model) for part in plain.values()]
                          for figure in ("median", "p90"))  # fmt: skip
        panel.bar(at + shift, medians, width=0.36, color=COLOURS[model], label=f"{model}, median")
        panel.errorbar(at + shift, medians, [np.zeros(len(at)), np.maximum(np.subtract(highs, medians), 0.0)],
                       fmt="none", ecolor=COLOURS[model], capsize=4, label=f"{model}, up to p90")  # fmt: skip
    panel.set_xticks(at, [PurePath(name).name for name in plain], rotation=20)
    panel.set_ylim(bottom=0)
    panel.set_ylabel("error of held-out pairs, %")
    panel.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.02, 1.0))
    plots.save(sheet, path)
