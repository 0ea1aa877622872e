"""A broker's capacity as its operator declares it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

from trimtab.errors import BadKnob


@dataclass(frozen=True, slots=True)
class Capacity:
    """``[broker]`` of trimtab.toml, or options of ``trimtab broker``."""

    bandwidth: float | None = None  # bytes/s, in and out together
    cores: float | None = None  # default: the cores of its machine
    speed: float | None = None  # of one core, relative to the hardware profile; default: the same
    memory: float | None = None  # bytes; default: the memory of its machine
    position: tuple[float, float] | None = None  # latitude and longitude, degrees

    def __post_init__(self) -> None:
        for knob in ("bandwidth", "cores", "speed", "memory"):
            value = getattr(self, knob)
            if value is not None and not 0.0 < value < math.inf:
                raise BadKnob("broker", knob, value, "more than zero, or left out")
        if self.position is not None and not (abs(self.position[0]) <= 90.0 and abs(self.position[1]) <= 180.0):
            raise BadKnob("broker", "position", self.position, "a latitude up to 90 and a longitude up to 180 degrees")

    def about(self) -> dict[str, Any]:
        """The fields of the broker's entry in the registry."""
        return {
            "bandwidth": self.bandwidth, "cores": self.cores or float(os.cpu_count() or 1),
            "speed": self.speed or 1.0,
            "memory": self.memory or float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
            "position": self.position and list(self.position),
        }  # fmt: skip
