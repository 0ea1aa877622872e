"""The taxi service of Khare et al. (SEC'18, III-A) on a live fleet: a gps and an update topic for each region.

Taxis publish their positions on the gps topic of their region. A processor at the broker prepares them. The dispatch
receives them, and publishes what it learns on the region's update topic, which all taxis of the region receive. Both
topics have a bound. One client stands for the taxis of several regions.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.fleet.sdk.client import connect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from trimtab.fleet.protocol.message import Message
    from trimtab.fleet.sdk.client import Client
    from trimtab.lab.worlds.taxi import Activity

STAMP: Final = struct.Struct("!d")  # time of sending, at the begin of each message
TICK_S: Final = 0.02
UPDATE_S: Final = 5.0  # interval of a region's updates
LAST_S: Final = 3.0  # wait for messages under way at the end
GPS_BYTES: Final = 120


@dataclass(slots=True)
class Tally:
    """Messages of one kind of topic."""

    sent: int = 0
    delays_s: list[float] = field(default_factory=list)

    def kept(self, bound_s: float) -> float:
        """The share of messages that were delivered within the bound."""
        within = sum(delay <= bound_s for delay in self.delays_s)
        return within / self.sent if self.sent else 1.0

    def percentile_ms(self, percent: float) -> float:
        return 1000.0 * float(np.percentile(self.delays_s, percent)) if self.delays_s else float("nan")


@dataclass(slots=True)
class TaxiService:
    """``peak`` messages/s of all gps topics at the busiest moment; a day takes ``seconds``."""

    home: Path
    city: Activity
    seconds: float
    peak: float
    processor: str = "burn?ms=20"
    processing_ms: float = 20.0  # CPU time of a gps message
    bound_ms: float = 1000.0
    cars: int = 4  # clients that stand for the taxis
    warm_up_s: float = 0.0  # traffic of the first moment before the day begins, which is not counted
    began: float = 0.0  # begin of the day, on the monotonic clock
    gps: Tally = field(default_factory=Tally)
    update: Tally = field(default_factory=Tally)

    def rates(self, share: float) -> np.ndarray:
        """(R,) messages/s of the gps topics when this share of the day is over."""
        share = max(share, 0.0)
        step = min(int(share * self.city.taxis.shape[1]), self.city.taxis.shape[1] - 1)
        return np.asarray(self.city.taxis[:, step] * self.peak / max(float(self.city.total().max()), 1e-9))

    async def run(self, on_second: Callable[[float], Awaitable[None]] | None = None) -> None:
        """A day. ``on_second`` is called about once a second of the day with the share of it that is over."""
        async with contextlib.AsyncExitStack() as stack:
            dispatch = await stack.enter_async_context(connect(self.home, name="dispatch"))
            cars = [
                await stack.enter_async_context(connect(self.home, name=f"cars-{number}"))
                for number in range(min(self.cars, len(self.city.regions)))
            ]
            mean = np.mean([self.rates(share) for share in np.linspace(0.0, 1.0, 48, endpoint=False)], axis=0)
            for row, region in enumerate(self.city.regions):
                expected = {"rate": float(mean[row]), "processing_ms": self.processing_ms}
                bound = {"latency_ms": self.bound_ms}
                await dispatch.create_topic(f"gps.{region}", processor=self.processor, **bound, **expected)
                await dispatch.create_topic(f"update.{region}", **bound)
                await dispatch.subscribe(f"gps.{region}", self._counted(self.gps))
                await cars[row % len(cars)].subscribe(f"update.{region}", self._counted(self.update))
            self.began = time.monotonic() + self.warm_up_s
            watching = asyncio.create_task(self._watch(on_second)) if on_second is not None else None
            try:
                await asyncio.gather(self._drive(cars), self._inform(dispatch))
                await asyncio.sleep(LAST_S)
            finally:
                if watching is not None:
                    watching.cancel()

    def _counted(self, tally: Tally) -> Callable[[Message], None]:
        def count(message: Message) -> None:
            sent = STAMP.unpack_from(message.data)[0]
            if sent >= self.began:
                tally.delays_s.append(time.monotonic() - sent)

        return count

    async def _drive(self, cars: list[Client]) -> None:
        due = np.random.default_rng(0).random(len(self.city.regions))  # messages; each region has a phase of its own
        last = time.monotonic()
        while (now := time.monotonic()) < self.began + self.seconds:
            due += self.rates((now - self.began) / self.seconds) * (now - last)
            last = now
            for row in np.flatnonzero(due >= 1.0).tolist():
                due[row] -= 1.0
                self.gps.sent += now >= self.began
                await cars[row % len(cars)].publish(f"gps.{self.city.regions[row]}", _message(now))
            await asyncio.sleep(TICK_S)

    async def _inform(self, dispatch: Client) -> None:
        while time.monotonic() < self.began + self.seconds:
            for region in self.city.regions:
                now = time.monotonic()
                self.update.sent += now >= self.began
                await dispatch.publish(f"update.{region}", _message(now))
                await asyncio.sleep(UPDATE_S / len(self.city.regions))

    async def _watch(self, on_second: Callable[[float], Awaitable[None]]) -> None:
        await asyncio.sleep(max(0.0, self.began - time.monotonic()))
        while True:
            await on_second(min(1.0, (time.monotonic() - self.began) / self.seconds))
            await asyncio.sleep(1.0)


def _message(now: float) -> bytes:
    return STAMP.pack(now).ljust(GPS_BYTES, b".")
