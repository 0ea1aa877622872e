"""The part of the loop's state that a successor needs, as it is stored at the hub."""

from __future__ import annotations

from typing import Any

import msgspec

from trimtab.fleet.protocol.admin_verbs import ControllerStatus
from trimtab.model.key import Key, Unit


class MovedKey(msgspec.Struct, array_like=True, frozen=True):
    """A key that a plan has moved."""

    unit: Unit
    topic: str
    client: str
    times: int  # moves in a row
    last: float  # time of the last one
    to: str

    @property
    def key(self) -> Key:
        return Key(self.unit, self.topic, self.client)


class Incidents(msgspec.Struct, array_like=True):
    """Deaths and refusals of one broker."""

    times: int = 0
    last: float = 0.0
    until: float = 0.0  # the broker gets no keys before this time


class Pace(msgspec.Struct, array_like=True):
    """When a goal with a pause is asked again."""

    interval_s: float
    after: float = 0.0  # time before which the goal proposes nothing


class Memory(msgspec.Struct):
    """State that keeps a successor from moving the same keys again."""

    moved: list[MovedKey] = []
    recent: list[float] = []  # times of moves within the budget's window
    trouble: dict[str, Incidents] = {}  # by broker
    pause: int = 0
    quiet_until: float = 0.0
    brokers: list[str] = []
    leaving: dict[str, float] = {}  # brokers to be removed, each with its deadline
    futile: list[tuple[str, str, str]] = []  # goal, aim and broker whose plan did not help
    paces: dict[str, Pace] = {}  # by goal
    model: dict[str, Any] = {}  # latency model that has learned from a drift; empty: that of the settings


class ControllerState(ControllerStatus, kw_only=True):
    """The state of a controller as it is stored."""

    memory: Memory = msgspec.field(default_factory=Memory)
