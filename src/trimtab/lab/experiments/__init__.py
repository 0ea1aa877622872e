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
    "coordinates": (
        "coordinates:NetworkCoordinates",
        "Gupta Figure 3: network coordinates on a star, and on any matrix of round-trip times",
    ),
    "mmog": ("mmog:Figure4", "Gupta Figure 4: broker selection for a multiplayer game, against an oracle"),
    "uav": ("uav:Figure5", "Gupta Figure 5: broker selection for swarms of vehicles, with outliers in measurements"),
    "uav-live": ("uav_live:UavLive", "Gupta Figure 8 on real brokers: swarms that fly from zone to zone, audited"),
    "mmog-live": ("mmog_live:MmogLive", "Gupta Figure 9 on real brokers: a game whose groups change, audited"),
    "joint-live": (
        "joint_live:JointLive",
        "topics whose bounds only a broker both near and idle can keep, on real brokers",
    ),
    "overload": (
        "overload:Overload",
        "Gupta Section 5.4: which traffic figure of a broker tells that its p95 is out of bound, and above what",
    ),
    "monitoring-size": ("monitoring_size:Figure6", "Gupta Figure 6: size of latency reports, by clients of a topic"),
    "downtime": (
        "downtime:Downtime",
        "Gupta Figure 7: client downtime and migration time, against unload-then-look-up",
    ),
    "handover": ("handover:Handover", "live moves of topics and clients, audited message by message; with kills too"),
    "processing": (
        "processing:Processing",
        "Khare Figure 1a-1d on a live broker: processing, subscribers, background load",
    ),
    "colocation-live": (
        "colocation_live:ColocationLive",
        "placements by predicted latency on real brokers: predicted and measured p90 side by side",
    ),
    "latency-sensitivity": (
        "latency_sensitivity:LatencySensitivity",
        "Khare Figure 1a-1d on the simulated broker, beside the printed figures",
    ),
    "latency-accuracy": (
        "latency_accuracy:LatencyAccuracy",
        "Khare Table I and Figure 2: the paper's latency models, and trim, on random and on chosen sets",
    ),
    "stability": ("stability:Stability", "whether the controller comes to rest, in cases on which balancers oscillate"),
    "colocation": ("colocation:Figure3", "Khare Figure 3: co-location heuristics, with the paper's oracle and ours"),
    "colocation-hybrid": ("colocation_hybrid:Figure4", "Khare Figure 4: the hybrid heuristic by k'"),
    "maxdata-scale": ("maxdata_scale:MaxDataScale", "Lambert Section V-D, Figures 10-13, and up to ten million links"),
}


def experiment(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise UnknownName("experiment", name, EXPERIMENTS)
    module, _, kind = EXPERIMENTS[name][0].partition(":")
    instance: Experiment = getattr(importlib.import_module(f"trimtab.lab.experiments.{module}"), kind)()
    return instance
