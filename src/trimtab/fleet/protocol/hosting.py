"""What is known about processing when a topic is created: its expected traffic, and the rules of the controller."""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from trimtab.errors import BadKnob

RULES: Final = "hosting"  # key of ``HostingRules`` in the controller's bucket


class Expected(msgspec.Struct, frozen=True):
    """The traffic that the creator of a topic expects."""

    rate: float  # messages/s
    processing_ms: float  # CPU time of a message

    def __post_init__(self) -> None:
        for name in ("rate", "processing_ms"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value < math.inf:
                raise BadKnob("expected traffic", name, value, "a number, zero or more")


class HostingRules(msgspec.Struct, frozen=True):
    """Settings of the controller by which the keeper chooses hosts of new topics, also while no controller runs."""

    model: dict[str, Any] = {}  # latency model; empty: of an unknown machine
    headroom: float = 0.1  # share of time in which the processor of a topic with a bound must not be busy
    thrift: bool = False  # whether to use as few brokers as possible
