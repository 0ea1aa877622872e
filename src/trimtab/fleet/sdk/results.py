"""A client's subscriptions to channels: every result once and in order, including those of the time it was away.

The hub stores results in one stream and republishes each one when it is stored. A message carries its own sequence
number and that of the previous result of the same subscription. So the client sees a gap at once and fetches missing
results from the stream: after a broken connection, a change of home, or a week of absence. A large result comes in
several messages, which are joined (``assembly``); its sequence number is the highest of its parts.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet.protocol import coding, names, subjects
from trimtab.fleet.protocol.hub_verbs import ResultRecord
from trimtab.fleet.protocol.message import places
from trimtab.fleet.protocol.streams import RESULTS
from trimtab.fleet.sdk import callbacks
from trimtab.fleet.sdk.assembly import Assembly, Part

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

    Callback = Callable[["Result"], Awaitable[None] | None]

FETCH: Final = subjects.direct_get(names.HUB, RESULTS)
FETCH_S: Final = 2.0
WAITING: Final = 1_000  # results buffered for an iterating application; further ones stay at the hub meanwhile


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one execution of a channel for one subscription."""

    channel: str
    subscription: str
    execution: int
    at: str  # the execution's time, ISO 8601
    rows: list[dict[str, Any]]
    seq: int  # sequence number in the stream of all results
    part: int = 1  # number of this part, from 1; parts come separately only if other parts are lost
    parts: int = 1  # 1 for a whole result
    left_out: int = 0  # rows that were too large to be sent
    reason: str = ""  # why the last of these rows was left out


class ChannelSubscription:
    """A subscription made by ``Client.subscribe_channel``.

    Without a callback, iterate over it: ``async for result in subscription``.
    """

    def __init__(self, channel: str, identity: str, params: dict[str, Any], callback: Callback | None) -> None:
        self.channel = channel
        self.id = identity
        self.params = params
        self.received = 0
        self._callback = callback
        self._line: deque[Result] = deque()
        self._news = asyncio.Event()
        self._ended = False

    async def take(self, result: Result) -> None:
        self.received += 1
        if self._callback is None:
            while len(self._line) >= WAITING and not self._ended:
                self._news.clear()
                await self._news.wait()
            self._line.append(result)
            self._news.set()
            return
        of = "channel %s failed on execution %d"
        await callbacks.call(self._callback, (result,), of, self.channel, result.execution)

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def __aiter__(self) -> AsyncIterator[Result]:
        while True:
            while self._line:
                result = self._line.popleft()
                self._news.set()
                yield result
            if self._ended:
                return
            self._news.clear()
            await self._news.wait()


@dataclass(slots=True, eq=False)
class Followed:
    """A channel with certain parameters, followed once for all of the client's subscriptions to it."""

    channel: str
    id: str
    seen: int  # results up to this sequence number have been delivered
    takers: list[ChannelSubscription] = field(default_factory=list)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)  # one result at a time
    _assembly: Assembly = field(default_factory=Assembly)

    @property
    def subject(self) -> str:
        return subjects.channel(self.channel, self.id)

    @property
    def stored_as(self) -> str:
        return subjects.result(self.channel, self.id)

    async def receive(self, raw: Msg, nats: Nats) -> None:
        """Handle a message that the hub has stored and republished."""
        seq, before = places(raw.headers)
        async with self._turn:
            if seq <= self.seen:
                return
            if before > self.seen:
                await self._fetch(nats, upto=before)
            await self._deliver(Part(seq, coding.decode(raw.data, ResultRecord)), nats)

    async def catch_up(self, nats: Nats) -> None:
        """Fetch and deliver the results stored after ``seen``."""
        async with self._turn:
            await self._fetch(nats)

    async def _fetch(self, nats: Nats, upto: int | None = None) -> None:
        while upto is None or self.seen < upto:
            part = await self._next(nats, self.seen)
            if part is None:
                return
            await self._deliver(part, nats)

    async def _next(self, nats: Nats, after: int) -> Part | None:
        """The first message stored after this sequence number; None if there is none or it has expired."""
        question = {"seq": after + 1, "next_by_subj": self.stored_as}
        reply = await nats.request(FETCH, json.dumps(question).encode(), timeout=FETCH_S)
        if (reply.headers or {}).get("Status"):
            return None
        return Part(places(reply.headers)[0], coding.decode(reply.data, ResultRecord))

    async def _deliver(self, part: Part, nats: Nats) -> None:
        earlier = await self._earlier(part, nats) if self._assembly.lacks_earlier(part) else []
        for assembled in self._assembly.add(part, earlier):
            result = Result(
                self.channel, self.id, assembled.execution, assembled.at, assembled.rows, assembled.seq,
                assembled.part, assembled.parts, assembled.left_out, assembled.reason,
            )  # fmt: skip
            for taker in list(self.takers):
                await taker.take(result)
        self.seen = part.seq

    async def _earlier(self, part: Part, nats: Nats) -> list[Part]:
        """Parts of the same result that were stored before this client, or this run of it, subscribed."""
        parts: list[Part] = []
        earlier = await self._next(nats, part.after)
        while earlier is not None and earlier.seq < part.seq:
            if earlier.result == part.result:
                parts.append(earlier)
            earlier = await self._next(nats, earlier.seq)
        return parts
