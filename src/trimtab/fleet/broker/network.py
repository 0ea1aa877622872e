"""Settings of what a broker does by network latency."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trimtab.errors import BadKnob
from trimtab.observe.coordinates.registry import MODELS

NONE: Final = "none"  # the broker has no coordinate, and probes nobody
NAMES: Final = (*MODELS, NONE)


@dataclass(frozen=True, slots=True)
class NetworkSettings:
    """``[network]`` of trimtab.toml."""

    model: str = "robust"  # of coordinates; the same for all brokers of a fleet
    probe_s: float = 1.0  # interval of an agent's probes
    alone: bool = True  # whether topics that follow their clients are moved by brokers while no controller acts

    def __post_init__(self) -> None:
        if self.model not in NAMES:
            raise BadKnob("network", "model", self.model, f"one of {', '.join(NAMES)}")
        if not 0.05 <= self.probe_s <= 3600.0:
            raise BadKnob("network", "probe_s", self.probe_s, "from 0.05 seconds to an hour")
