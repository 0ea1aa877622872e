"""The papers' experiments by name, loaded when they are run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

from trimtab.errors import UnknownName

if TYPE_CHECKING:
    from trimtab.lab.experiment import Experiment

# name -> (module, what it shows)
EXPERIMENTS: Final = {
    "maxdata-tables": ("maxdata_tables", "Lambert Tables III and IV beside the printed numbers"),
    "maxdata-grid": ("maxdata_grid", "every link policy and bound over the paper's whole grid, Figures 2-6"),
    "downtime": ("downtime", "Gupta Figure 7: client downtime and migration time, against unload-then-look-up"),
    "handover": ("handover", "live moves of topics and clients, audited message by message; with kills too"),
    "processing": ("processing", "Khare Figure 1a-1d on a live broker: processing, subscribers, background load"),
    "maxdata-scale": ("maxdata_scale", "Lambert Section V-D, Figures 10-13, and on to ten million links"),
}


def experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise UnknownName("experiment", name, EXPERIMENTS)
    found: Experiment = importlib.import_module(f"trimtab.lab.experiments.{EXPERIMENTS[name][0]}").EXPERIMENT
    return found
