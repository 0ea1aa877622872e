"""The files of a profile: samples, the hardware profile, the fitted model, and a report with a plot."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.lab.experiment import markdown_table

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.lab.profile.fitting import Profile

SAMPLES: Final = "samples"
HARDWARE: Final = "profile.json"
MODEL: Final = "model.json"
REPORT: Final = "report.md"
PLOT: Final = "profile.png"
_ORIGIN: Final[dict[Any, str]] = {
    "measured": "Load tests on a real broker: topics whose processors burn CPU time, one message a second from every "
                "publisher.",
    "telemetry": "Co-locations of a fleet's past, from its history of telemetry.",
}  # fmt: skip


def write(profile: Profile, folder: Path) -> list[Path]:
    """Write all files; each appears as a whole or not at all."""
    profile.samples.write(folder / SAMPLES)
    _write_json(folder / HARDWARE, profile.fit.model.hardware.as_json())
    _write_json(folder / MODEL, profile.fit.model.as_json())
    _draw(profile, folder / PLOT)
    _replace(folder / REPORT, report(profile))
    return [folder / name for name in (HARDWARE, MODEL, SAMPLES, REPORT, PLOT)]


def figures(profile: Profile) -> list[tuple[str, str]]:
    """The results in words, for a table of two columns; without those that are not known."""
    return [(name, text) for name, text in _figures(profile) if "nan" not in text]


def _figures(profile: Profile) -> list[tuple[str, str]]:
    hardware, accuracy, cost, noise = profile.fit.model.hardware, profile.fit.accuracy, profile.cost, profile.noise
    return [
        ("measured", f"{len(profile.samples)} co-locations, {accuracy.topics} topics"),
        ("error, cross-validated", f"median {accuracy.error:.1%}, nine of ten within {accuracy.error_of_nine:.1%}"),
        ("of a perfect prediction", f"median {noise.median:.1%}, nine of ten within {noise.of_nine:.1%}, by repeated "
                                    "runs" if noise.topics else "unknown: no run was repeated"),
        ("a message at a processor", f"{cost.processor_ms:.2f} ms of CPU time beyond its function's"),
        ("at server and agent", f"{cost.broker_ms:.2f} ms"),
        ("at publisher and subscriber", f"{cost.client_ms:.2f} ms"),
        ("one more subscriber", f"{cost.copy_ms:.3f} ms of broker and subscriber; in the model "
                                f"{hardware.fanout_ms:.3f} ms"),
        ("other work", f"{max(cost.other_cores, 0.0):.2f} cores without a message"),
        ("messages/s, at most", f"{_rate(cost.processor_ms)} at one processor, {_rate(cost.broker_ms)} per core of "
                                "server and agent"),
        ("contention, switching", f"{hardware.contention:.3f}, {hardware.switching:.3f}"),
        ("network and fleet", f"{hardware.network_ms:.1f} ms"),
    ]  # fmt: skip


def _rate(cost_ms: float) -> str:
    """Messages/s of one core, if each costs so much; two digits; ``nan`` if it is not known."""
    return f"{float(f'{1000.0 / cost_ms:.2g}'):,.0f}" if cost_ms > 0.0 else "nan"


def report(profile: Profile) -> str:
    rows = [(name, text.replace("|", "/")) for name, text in figures(profile)]
    curve = [(str(point.sets), f"{point.error:.1%}") for point in profile.advice.curve]
    return "\n\n".join([
        f"# Hardware profile '{profile.fit.model.hardware.name}'",
        f"{_ORIGIN.get(profile.samples.provenance.get('source'), '')} Errors are those of the p90 of topics that the "
        "model was not fitted on.",
        markdown_table(["", ""], rows), f"![predicted beside measured]({PLOT})", "## Learning curve",
        markdown_table(["co-locations fitted on", "median error"], curve),
        profile.advice.sentence(profile.noise).capitalize() + ".",
        "```json\n" + json.dumps(profile.samples.provenance, indent=2) + "\n```",
    ]) + "\n"  # fmt: skip


def _draw(profile: Profile, path: Path) -> None:
    from trimtab.lab import plots

    sheet, panels = plots.figure(1, 2, width=4.4, height=3.6)
    left, right = panels[0]
    measured, expected = profile.samples.p90_ms, profile.fit.expected_ms
    compare(left, measured, expected)
    left.set_title("topics the model was not fitted on", fontsize=9)
    use = profile.fit.model.use(profile.samples.sets)
    right.plot(use, 100.0 * (expected / measured - 1.0), ".", color="#30638e", markersize=4)
    right.axhline(0.0, color="black", linewidth=0.8)
    right.set_xlabel("share of time in which the topic's worker is busy")
    right.set_ylabel("error, %")
    plots.save(sheet, path)


def compare(panel: Any, measured: Any, predicted: Any) -> None:
    """Predicted beside measured p90s, with lines at 30 % too much and too little."""
    from matplotlib.ticker import LogLocator, NullFormatter

    ends = np.array([min(measured.min(), predicted.min()), max(measured.max(), predicted.max())])
    panel.plot(ends, ends, color="black", linewidth=0.8)
    for factor in (0.7, 1.3):
        panel.plot(ends, factor * ends, ":", color="black", linewidth=0.8)
    panel.plot(measured, predicted, ".", color="#d1495b", markersize=4)
    panel.set_xscale("log")
    panel.set_yscale("log")
    for axis in (panel.xaxis, panel.yaxis):  # few enough numbers that they do not overlap
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter(NullFormatter())
    panel.set_xlabel("measured p90, ms (dotted: 30 % off)")
    panel.set_ylabel("predicted p90, ms")


def _write_json(path: Path, values: dict[str, Any]) -> None:
    _replace(path, json.dumps(values, indent=2) + "\n")


def _replace(path: Path, text: str) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(text)
        os.replace(partial, path)
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror or error}") from None
