"""The network coordinate of a broker: its agent probes a few other agents and moves its coordinate by the answers.

A probe takes the way of the data: over the broker's own server and the mesh between servers. Each agent knows its own
measurements and the coordinates of all brokers, which the hub distributes; no process knows all pairs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
import zlib
from typing import TYPE_CHECKING, Final

import nats.errors

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.broker.network import NONE, NetworkSettings
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.agent_verbs import GetPeerRtt, PeerRtt, Probe, Probed
from trimtab.fleet.protocol.hub_verbs import ReportCoordinate
from trimtab.observe.coordinates.registry import coordinate_model
from trimtab.observe.recent import RecentRtts
from trimtab.observe.report import ProbeCounts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from nats.aio.client import Client as Nats

    from trimtab.fleet.protocol.request import Handler
    from trimtab.observe.coordinates.coordinate import Coordinate
    from trimtab.observe.coordinates.node import Node

log = logging.getLogger("trimtab.agent")
PEERS: Final = 32  # most brokers that one agent probes
ANSWER_S: Final = 2.0  # limit for the answer to a probe
FORGET_S: Final = 300.0  # time without an answer, beside three turns, after which a peer is forgotten
JITTER: Final = 0.25  # share by which an interval is drawn longer or shorter
EAGER: Final = 40  # first probes of an agent, which come five times as often
PUBLISHED_AFTER: Final = 5  # probes after which the coordinate is published every time, at most
TRUSTED_AFTER: Final = 10  # answered probes before the first publication
MOVED: Final = 0.05  # change that is published, as a share of the median round-trip time to peers
MOVED_MS: Final = 0.5  # and at least this


class Probing:
    """Probes ``peers()``, one at a time, in turns. ``run`` and ``publish`` are loops that do not end."""

    def __init__(
        self, broker: str, connection: Nats, settings: NetworkSettings, peers: Callable[[], Iterable[str]]
    ) -> None:
        self.counts = ProbeCounts()
        self.node: Node | None = None
        self._broker = broker
        self._connection = connection
        self._settings = settings
        self._peers = peers
        self._recent = RecentRtts(PEERS)
        self._turn: list[str] = []
        seed = zlib.crc32(broker.encode())
        self._random = random.Random(seed)
        self._published: Coordinate | None = None
        self._newest: dict[str, float] = {}  # times of which the peer has not been told
        self._both_ends = False
        if settings.model != NONE:
            model = coordinate_model(settings.model)
            self.node, self._both_ends = model.node(seed), model.both_ends

    def handlers(self) -> list[Handler]:
        return [Probe.answered_by(self._answer), GetPeerRtt.answered_by(self._peer_rtt)]

    def start_at(self, coordinate: Coordinate | None) -> None:
        """Go on from the coordinate that was published before a restart of the agent."""
        if coordinate is not None and self.node is not None and self.node.resume(coordinate):
            self._published = coordinate

    async def _answer(self, request: Probe) -> Probed:
        if self.node is None:
            raise BadInput(f"broker '{self._broker}' has no coordinate: its [network] model is '{NONE}'")
        told = request.coordinate is not None and request.rtt_ms is not None
        if told and self._both_ends and request.broker in self._peers():
            self.node.update(request.broker, request.coordinate, request.rtt_ms)  # type: ignore[arg-type]
        return Probed(self._broker, self.node.coordinate())

    async def _peer_rtt(self, request: GetPeerRtt) -> PeerRtt:
        return PeerRtt(self._recent.typical(request.peer))

    async def run(self) -> None:
        """Probe in turns."""
        while True:
            eager = 0.2 if self.counts.sent < EAGER else 1.0
            await asyncio.sleep(eager * self._settings.probe_s * self._random.uniform(1.0 - JITTER, 1.0 + JITTER))
            if self.node is not None and (peer := self._next_peer()):
                await self.probe(peer)

    def _next_peer(self) -> str:
        """Peers take turns. In a fleet with many brokers, each agent has its own ``PEERS`` of them."""

        def rank(peer: str) -> int:
            return zlib.crc32(f"{self._broker} {peer}".encode())

        peers = sorted((peer for peer in self._peers() if peer != self._broker), key=rank)[:PEERS]
        self._turn = [peer for peer in self._turn if peer in peers]
        if not self._turn:
            self._turn = self._random.sample(peers, len(peers))
            oldest = asyncio.get_running_loop().time() - FORGET_S - 3 * PEERS * self._settings.probe_s
            for gone in self._recent.expire(oldest):
                self._newest.pop(gone, None)
                if self.node is not None:
                    self.node.forget(gone)
        return self._turn.pop() if self._turn else ""

    async def probe(self, peer: str) -> None:
        """Measure the round-trip time to a peer, and learn from the answer unless it cannot be right."""
        assert self.node is not None
        loop, counts = asyncio.get_running_loop(), self.counts
        counts.sent += 1
        began = loop.time()
        try:
            request = Probe(self._broker, self.node.coordinate(), self._newest.pop(peer, None))
            answer = await wire.ask(self._connection, request, ANSWER_S, broker=peer)
        except BadInput as error:
            counts.refused += 1
            log.debug("a probe of %s: %s", peer, error)
            return
        except (Unreachable, nats.errors.Error, TimeoutError, OSError):
            counts.unanswered += 1
            return
        rtt_ms = 1000.0 * (loop.time() - began)
        if answer.broker != peer:
            counts.refused += 1
            log.warning("a probe of %s was answered by %s, and is not used", peer, answer.broker)
            return
        before, possible = self.node.rejected, self._recent.add(peer, rtt_ms, began)
        if possible:
            self.node.update(peer, answer.coordinate, rtt_ms)
        if not possible or self.node.rejected > before:
            counts.refused += 1
            return
        self._newest[peer] = rtt_ms
        counts.answered += 1
        counts.resets = self.node.resets

    async def publish(self) -> None:
        """Send the coordinate to the hub whenever it has changed by more than a little."""
        while True:
            await asyncio.sleep(PUBLISHED_AFTER * self._settings.probe_s)
            fresh = self.changed()
            if fresh is None:
                continue
            with contextlib.suppress(BadInput, Unreachable, nats.errors.Error, TimeoutError):  # tried again
                await wire.ask(self._connection, ReportCoordinate(self._broker, fresh), ANSWER_S)
                self._published = fresh

    def changed(self) -> Coordinate | None:
        """The coordinate, if it is to be published."""
        if self.node is None or self.counts.answered < TRUSTED_AFTER:
            return None
        now, before = self.node.coordinate(), self._published
        if before is None or len(before.point) != len(now.point):
            return now
        times = list(self._recent.nearest(PEERS).values())
        least_ms = max(MOVED_MS, MOVED * times[len(times) // 2]) if times else MOVED_MS
        moved_ms = math.dist(now.point, before.point) + abs(now.height - before.height)
        return now if moved_ms + abs(now.adjustment - before.adjustment) > least_ms else None
