"""A client's position in the network: its gateway, which is the nearest broker, and the time to it.

The round-trip time to a broker over an open connection is that of a PING, which the broker's server answers. A broker
without a connection is tried now and then over a short one, so that the client finds brokers that are nearer.
A mobile client may be told its gateway instead, as by the proxies of Gupta et al. (SEC'21, 3.1). Then it measures
nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Final

import nats.errors

from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.protocol.agent_verbs import GetCoordinates
from trimtab.observe.coordinates.coordinate import Estimate
from trimtab.observe.recent import RecentRtts
from trimtab.observe.report import MOST_MEASURED, ClientPosition

if TYPE_CHECKING:
    from trimtab.fleet.sdk.wires import Wire, Wires

PROBE_S: Final = 5.0  # interval of probes over open connections
REPORT_S: Final = 5.0  # interval of reports of an unchanged position
FORGET_S: Final = 900.0  # time without a new sample after which a broker counts as not measured
KEPT: Final = 64  # most brokers whose times are kept
JITTER: Final = 0.25


class Position:
    """Measures round-trip times to brokers. ``run`` is a loop that does not end."""

    def __init__(self, client: str, wires: Wires, explore_s: float) -> None:
        self.refused = 0  # probes answered by another broker, or after an impossible time
        self._wires = wires
        self._explore_s = explore_s  # 0: never
        self._random = random.Random(client)
        self._recent = RecentRtts(KEPT)
        self._given: ClientPosition | None = None
        self._version = 0  # grows when the gateway changes
        self._gateway = ""
        self._detached = asyncio.Event()
        self._sent: dict[str, int] = {}  # broker -> version in the report that is under way
        self._reported: dict[str, tuple[int, float]] = {}  # broker -> version and time of the last report to it

    def attach(self, gateway: str, access_ms: float) -> None:
        """Take a position as given, and forget what was measured elsewhere."""
        if gateway not in self._wires.addresses:
            raise UnknownName("broker", gateway, sorted(self._wires.addresses))
        self._given = ClientPosition(gateway, access_ms)
        self._recent.clear()
        self._version += 1

    def detach(self) -> None:
        """Measure again, and at once."""
        self._given = None
        self._gateway = ""
        self._version += 1
        self._detached.set()

    @property
    def now(self) -> ClientPosition | None:
        """None: no broker has been measured yet."""
        if self._given is not None:
            return self._given
        nearest = self._recent.nearest(MOST_MEASURED)
        if not nearest:
            return None
        gateway = next(iter(nearest))
        return ClientPosition(gateway, nearest[gateway], nearest)

    def measured(self, broker: str) -> Estimate | None:
        """The measured time to a broker, or the given one to the gateway."""
        if self._given is not None:
            return Estimate(self._given.access_ms, True) if broker == self._given.gateway else None
        rtt_ms = self._recent.typical(broker)
        return None if rtt_ms is None else Estimate(rtt_ms, True)

    async def rtt(self, broker: str, base: Wire) -> Estimate:
        """The measured time to a broker, or else an estimate by the coordinates that the agent at ``base`` knows."""
        if (measured := self.measured(broker)) is not None:
            return measured
        if broker not in self._wires.addresses:
            raise UnknownName("broker", broker, sorted(self._wires.addresses))
        if (here := self.now) is None:
            raise Unreachable("the client has not measured the time to any broker yet")
        known = (await base.ask(GetCoordinates())).coordinates
        for name in (here.gateway, broker):
            if name not in known:
                raise Unreachable(f"broker '{name}' has no network coordinate yet")
        return Estimate(known[here.gateway].behind(here.access_ms).rtt_ms(known[broker]), False)

    def due(self, broker: str) -> ClientPosition | None:
        """The position, if it is to be part of the next report to a broker: every few seconds, or after a change."""
        version, at = self._reported.get(broker, (-1, 0.0))
        late = asyncio.get_running_loop().time() - at > REPORT_S - 0.5
        self._sent[broker] = self._version
        return self.now if late or version != self._version else None

    def settle(self, broker: str) -> None:
        """The broker has the position that was due last. It may have changed since then."""
        self._reported[broker] = self._sent[broker], asyncio.get_running_loop().time()

    async def run(self) -> None:
        explored_at = self._explore_s * self._random.random()  # the first time of all clients differs
        loop = asyncio.get_running_loop()
        began = loop.time()
        while True:
            if self._given is None:
                await self.probe()
                if self._explore_s > 0.0 and loop.time() - began >= explored_at:
                    explored_at += self._explore_s
                    await self.explore()
            interval_s = min(PROBE_S, self._explore_s or PROBE_S) * self._random.uniform(1.0 - JITTER, 1.0 + JITTER)
            await tasks.happens(self._detached, interval_s)
            self._detached.clear()

    async def probe(self) -> None:
        """Measure the brokers that the client is connected to."""
        opened = [each for each in self._wires if each.nats.is_connected]
        for each in self._random.sample(opened, min(len(opened), MOST_MEASURED)):
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                self._add(each.broker, await each.rtt_ms())
        self._choose()
        self._recent.expire(asyncio.get_running_loop().time() - FORGET_S)

    async def explore(self) -> None:
        """Measure one broker that the client is not connected to: one that was never measured, or longest ago."""
        others = [broker for broker in self._wires.addresses if self._wires.get(broker) is None]
        if others:
            self._random.shuffle(others)
            broker = min(others, key=lambda name: self._recent.last(name) or 0.0)
            with contextlib.suppress(BadInput, nats.errors.Error, OSError, TimeoutError):  # away, or not reachable
                self._add(broker, await self._wires.try_rtt_ms(broker))
            self._choose()

    def _add(self, broker: str, rtt_ms: float | None) -> None:
        if self._given is not None:
            return  # the client was attached while the answer was on its way
        if rtt_ms is None or not self._recent.add(broker, rtt_ms, asyncio.get_running_loop().time()):
            self.refused += 1

    def _choose(self) -> None:
        """A change of the gateway is reported at once."""
        if (now := self.now) is not None and now.gateway != self._gateway:
            self._gateway = now.gateway
            self._version += 1
