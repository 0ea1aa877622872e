"""The part of a client that subscribes to channels: what it follows, and how far it has come."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.errors import BadInput
from trimtab.fleet.protocol import subjects, wire
from trimtab.fleet.protocol.hub_verbs import (
    ChannelId,
    SeenResults,
    SubscribeChannels,
    UnsubscribeChannels,
    WantedChannel,
)
from trimtab.fleet.protocol.latest import latest
from trimtab.fleet.protocol.message import places
from trimtab.fleet.protocol.streams import MOST, RESULTS
from trimtab.fleet.protocol.types import as_json
from trimtab.fleet.sdk.results import ChannelSubscription, Followed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from trimtab.fleet.sdk.base import Base
    from trimtab.fleet.sdk.results import Result

    Wanted = tuple[str, Callable[[Result], Any] | None, dict[str, Any]]  # channel, callback, parameters

log = logging.getLogger("trimtab.client")
ANSWER_S: Final = 60.0  # the hub stores every subscription before it answers
AT_ONCE: Final = 32  # requests for what was missed
LOOK_S: Final = 5.0  # between looks for results that got lost on the way and were followed by none; per 100 of them


class ChannelClient:
    """Every result once and in order; what came while the client was away, too, if it returns under its name."""

    def __init__(self, client: str, base: Base, *, returns: bool) -> None:
        self._client = client
        self._base = base
        self._returns = returns
        self._followed: dict[str, Followed] = {}  # by subject
        self._told = -1  # the position that was told to the hub last
        self._position = -1  # the furthest result that has been delivered
        self._under_way = 0  # results that are being delivered, or fetched
        self._missed = 0  # times that a result could not be fetched
        self._caught_up: object = None  # the state since which no result can have been missed
        self._looked = 0  # everything up to this result was looked for
        self._look_at = 0.0  # when to look again

    def __bool__(self) -> bool:
        return bool(self._followed)

    async def subscribe(self, wanted: Sequence[Wanted]) -> list[ChannelSubscription]:
        """All of them, or none if the hub refuses one."""
        made: list[ChannelSubscription] = []
        try:
            fresh = await self._subscribe(wanted, made)
        except BadInput:
            with contextlib.suppress(BadInput, nats.errors.Error, OSError):
                await self.unsubscribe(made)
            raise
        if not await self._catch_up(fresh):
            self._missed += 1
        return made

    async def _subscribe(self, wanted: Sequence[Wanted], made: list[ChannelSubscription]) -> list[Followed]:
        """Add the subscriptions to ``made``; those that this client did not follow before."""
        fresh: list[Followed] = []
        for at in range(0, len(wanted), MOST):
            some = wanted[at : at + MOST]
            asked = [WantedChannel(name, as_json(params)) for name, _, params in some]
            answer = await wire.ask(self._base.nats, SubscribeChannels(self._client, asked), ANSWER_S)
            for (name, callback, params), known in zip(some, answer.subscriptions, strict=True):
                made.append(ChannelSubscription(name, known.id, params, callback))
                followed = Followed(name, known.id, max(answer.position, known.since))
                if followed.subject in self._followed:
                    self._followed[followed.subject].takers.append(made[-1])
                    continue
                followed.takers.append(made[-1])
                fresh.append(followed)
                await self._follow(followed)
        await self._base.nats.flush()
        return fresh

    async def renew(self) -> None:
        """The hub has forgotten this client, which was away for long: subscribe again to all it follows."""
        known = list(self._followed.values())
        for at in range(0, len(known), MOST):
            asked = [WantedChannel(each.channel, as_json(each.takers[0].params)) for each in known[at : at + MOST]]
            await wire.ask(self._base.nats, SubscribeChannels(self._client, asked), ANSWER_S)
        self._told = -1
        self._missed += 1  # look for what has come meanwhile

    async def _follow(self, followed: Followed) -> None:
        self._followed[followed.subject] = followed

        async def heard(raw: Any) -> None:
            try:
                await self._count(followed, followed.came(raw, self._base.nats))
            except (nats.errors.Error, TimeoutError, OSError) as error:  # what is missing is fetched when it can be
                log.debug("channel %s: %r", followed.channel, error)
                self._missed += 1

        await self._base.hear(followed.subject, heard)

    async def _count(self, followed: Followed, delivery: Awaitable[None]) -> None:
        self._under_way += 1
        try:
            await delivery
        finally:
            self._under_way -= 1
            self._position = max(self._position, followed.seen)

    async def unsubscribe(self, subscriptions: Iterable[ChannelSubscription]) -> None:
        ended = []
        for each in subscriptions:
            followed = self._followed.get(subjects.channel(each.channel, each.id))
            if followed is None or each not in followed.takers:
                continue
            followed.takers.remove(each)
            each.end()
            if not followed.takers:
                del self._followed[followed.subject]
                await self._base.stop_hearing(followed.subject)
                ended.append(followed)
        await self._end(ended)

    async def _end(self, ended: list[Followed]) -> None:
        for at in range(0, len(ended), MOST):
            listed = [ChannelId(each.channel, each.id) for each in ended[at : at + MOST]]
            await wire.ask(self._base.nats, UnsubscribeChannels(self._client, listed), ANSWER_S)

    async def leave(self) -> None:
        """The client is closed: for good, or until it returns under its name."""
        known = list(self._followed.values())
        with contextlib.suppress(BadInput, nats.errors.Error, OSError):
            if known and not self._returns:
                await self._end(known)
            elif known:
                await self.tell_position(2.0)
        for followed in known:
            for each in followed.takers:
                each.end()

    async def tell_position(self, timeout_s: float = 1.0) -> None:
        """After a connection was made anew, fetch what was missed; then tell the hub how far this client has come."""
        base, now = self._base, self._state()
        clock = asyncio.get_running_loop().time()
        if now != self._caught_up or clock >= self._look_at:
            last = (await wire.ask(base.nats, SeenResults(self._client), timeout_s)).last
            if now != self._caught_up or last > self._looked:
                if not await self._catch_up(list(self._followed.values())):
                    return
                self._caught_up, self._looked = now, last
            self._look_at = clock + LOOK_S * (1 + len(self._followed) / 100)
        position = self._position
        # Results come in the order of their stream over one connection, and wake those who take them in that order;
        # and gaps are filled before what follows them. So when all that were woken have begun and none is under way,
        # the furthest that was delivered is as far as the client has come.
        await asyncio.sleep(0)
        if position > self._told and not self._under_way and now == self._state():
            await wire.ask(base.nats, SeenResults(self._client, position), timeout_s)
            self._told = position

    def _state(self) -> object:
        """Another one whenever a result may have been missed."""
        return self._base.wire, self._base.nats.stats["reconnects"], self._missed

    async def _catch_up(self, some: list[Followed]) -> bool:
        """Fetch what may have been missed of these; whether all of it came."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(followed: Followed) -> None:
            async with turn:
                await self._count(followed, followed.catch_up(self._base.nats))

        try:
            last = await latest(self._base.nats, RESULTS, [each.stored_as for each in some])
            newest = {subject: places(message.headers)[0] for subject, message in last.items()}
            await asyncio.gather(*(one(each) for each in some if newest.get(each.stored_as, 0) > each.seen))
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.debug("client %s: %r", self._client, error)
            return False
        return True
