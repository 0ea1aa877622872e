"""Keeps a fleet of publish/subscribe brokers in balance: observe, predict, place, migrate.

>>> import trimtab
>>> workload = trimtab.read_workload("folder")
>>> problem = trimtab.Problem(workload, "link")
>>> placement = trimtab.policy("link/trim").place(problem)
>>> trimtab.judge(problem, placement).received_share
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.errors import BadInput, TrimtabError, Unreachable
    from trimtab.fleet.sdk.client import connect
    from trimtab.model.folder import read_workload, write_workload
    from trimtab.model.hardware import Hardware
    from trimtab.model.judgement import Judgement
    from trimtab.model.placement import Bound, Placement
    from trimtab.model.placement_file import read_placement, write_placement
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Workload
    from trimtab.place.judge import judge
    from trimtab.place.registry import policies, policy
    from trimtab.predict.store import read_model

__all__ = [
    "BadInput",
    "Bound",
    "Hardware",
    "Judgement",
    "Placement",
    "Problem",
    "TrimtabError",
    "Unreachable",
    "Workload",
    "connect",
    "judge",
    "policies",
    "policy",
    "read_model",
    "read_placement",
    "read_workload",
    "write_placement",
    "write_workload",
]

# Where each name lives; loaded on first use, so that `import trimtab` costs nothing.
_HOME = {
    "BadInput": "errors",
    "Bound": "model.placement",
    "Hardware": "model.hardware",
    "Judgement": "model.judgement",
    "Placement": "model.placement",
    "Problem": "model.problem",
    "TrimtabError": "errors",
    "Unreachable": "errors",
    "Workload": "model.workload",
    "connect": "fleet.sdk.client",
    "judge": "place.judge",
    "policies": "place.registry",
    "policy": "place.registry",
    "read_model": "predict.store",
    "read_placement": "model.placement_file",
    "read_workload": "model.folder",
    "write_placement": "model.placement_file",
    "write_workload": "model.folder",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'trimtab' has no attribute '{name}'")
    return getattr(importlib.import_module(f"trimtab.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
