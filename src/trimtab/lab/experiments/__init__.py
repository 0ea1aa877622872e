"""The papers' experiments by name, loaded when they are run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from trimtab.errors import UnknownName

if TYPE_CHECKING:
    from trimtab.lab.experiment import Experiment

# name -> (module:class, description)
EXPERIMENTS: Final = {
    "maxdata-tables": ("maxdata_tables:MaxDataTables", "Lambert Tables III and IV beside the printed numbers"),
    "maxdata-grid": (
        "maxdata_grid:MaxDataGrid",
        "every link policy and bound over the paper's whole grid, Figures 2-6",
    ),
    "bad-simulation": (
        "bad_simulation:BadSimulation",
        "Nguyen Figures 5-14: loads over time, moves, thresholds, sharing",
    ),
    "reloc-locality": ("reloc:Locality", "Tanaka Figure 14: delay by the distance between a topic's members"),
    "reloc-spool": ("reloc:Spool", "Tanaka Figure 15: delay by the number of messages that topics keep"),
    "reloc-clusters": ("reloc:ClusterNumber", "Tanaka Figure 16: delay by the number of clusters"),
    "reloc-optimum": ("reloc:Optimum", "Tanaka Section 8: every policy against the true optimum, on small cases"),
    "downtime": (
        "downtime:Downtime",
        "Gupta Figure 7: client downtime and migration time, against unload-then-look-up",
    ),
    "handover": ("handover:Handover", "live moves of topics and clients, audited message by message; with kills too"),
    "processing": (
        "processing:Processing",
        "Khare Figure 1a-1d on a live broker: processing, subscribers, background load",
    ),
    "stability": ("stability:Stability", "whether the controller comes to rest, in cases on which balancers oscillate"),
    "maxdata-scale": ("maxdata_scale:MaxDataScale", "Lambert Section V-D, Figures 10-13, and up to ten million links"),
}


def experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise UnknownName("experiment", name, EXPERIMENTS)
    module, _, kind = EXPERIMENTS[name][0].partition(":")
    instance: Experiment = getattr(importlib.import_module(f"trimtab.lab.experiments.{module}"), kind)()
    return instance
