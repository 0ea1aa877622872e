"""The part of a client that subscribes to channels: its subscriptions, and its position in the stream of results."""

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

    from trimtab.fleet.sdk.base import Base, BaseSubscription
    from trimtab.fleet.sdk.results import Result

    Wanted = tuple[str, Callable[[Result], Any] | None, dict[str, Any]]  # channel, callback, parameters

log = logging.getLogger("trimtab.client")
ANSWER_S: Final = 60.0  # the hub stores every subscription before it answers
AT_ONCE: Final = 32  # concurrent fetches of missed results
LOOK_S: Final = 5.0  # interval of the check for missing trailing results; this much longer per 100 subscriptions


class ChannelClient:
    """Delivers every result once and in order, to named clients also those stored while the client was away."""

    def __init__(self, client: str, base: Base, *, returns: bool) -> None:
        self._client = client
        self._base = base
        self._returns = returns
        self._followed: dict[str, Followed] = {}  # by subject
        self._heard: dict[str, BaseSubscription] = {}  # by subject
        self._reported = -1  # position last reported to the hub
        self._position = -1  # highest sequence number of a delivered result
        self._under_way = 0  # deliveries and fetches in progress
        self._missed = 0  # number of times that a result could not be fetched
        self._caught_up: object = None  # ``_state`` at the last complete catch-up
        self._checked_upto = 0  # sequence number up to which missing results were fetched
        self._look_at = 0.0  # event loop time of the next check

    def __bool__(self) -> bool:
        return bool(self._followed)

    async def subscribe(self, wanted: Sequence[Wanted]) -> list[ChannelSubscription]:
        """Make all subscriptions, or none if the hub refuses one."""
        subscriptions: list[ChannelSubscription] = []
        try:
            fresh = await self._subscribe(wanted, subscriptions)
        except BadInput:
            with contextlib.suppress(BadInput, nats.errors.Error, OSError):
                await self.unsubscribe(subscriptions)
            raise
        if not await self._catch_up(fresh):
            self._missed += 1
        return subscriptions

    async def _subscribe(self, wanted: Sequence[Wanted], subscriptions: list[ChannelSubscription]) -> list[Followed]:
        """Add to ``subscriptions``. Return the channels with parameters that this client did not follow before."""
        fresh: list[Followed] = []
        for at in range(0, len(wanted), MOST):
            some = wanted[at : at + MOST]
            listed = [WantedChannel(name, as_json(params)) for name, _, params in some]
            reply = await wire.ask(self._base.nats, SubscribeChannels(self._client, listed), ANSWER_S)
            for (name, callback, params), place in zip(some, reply.subscriptions, strict=True):
                subscription = ChannelSubscription(name, place.id, params, callback)
                subscriptions.append(subscription)
                followed = Followed(name, place.id, max(reply.position, place.since))
                if followed.subject in self._followed:
                    self._followed[followed.subject].takers.append(subscription)
                    continue
                followed.takers.append(subscription)
                fresh.append(followed)
                await self._follow(followed)
        await wire.confirmed(self._base.nats)
        return fresh

    async def renew(self) -> None:
        """Make all subscriptions again, after the hub has removed this client because of a long absence."""
        followed = list(self._followed.values())
        for at in range(0, len(followed), MOST):
            some = followed[at : at + MOST]
            listed = [WantedChannel(channel.channel, as_json(channel.takers[0].params)) for channel in some]
            await wire.ask(self._base.nats, SubscribeChannels(self._client, listed), ANSWER_S)
        self._reported = -1
        self._missed += 1  # triggers a fetch of the results stored meanwhile

    async def _follow(self, followed: Followed) -> None:
        self._followed[followed.subject] = followed

        async def on_message(raw: Any) -> None:
            try:
                await self._count(followed, followed.receive(raw, self._base.nats))
            except (nats.errors.Error, TimeoutError, OSError) as error:  # fetched at a later check
                log.debug("channel %s: %r", followed.channel, error)
                self._missed += 1

        heard = await self._base.subscribe(followed.subject, on_message)
        if self._followed.get(followed.subject) is followed:
            self._heard[followed.subject] = heard
        else:  # unsubscribed meanwhile
            await self._base.unsubscribe(heard)

    async def _count(self, followed: Followed, delivery: Awaitable[None]) -> None:
        self._under_way += 1
        try:
            await delivery
        finally:
            self._under_way -= 1
            self._position = max(self._position, followed.seen)

    async def unsubscribe(self, subscriptions: Iterable[ChannelSubscription]) -> None:
        ended = []
        for subscription in subscriptions:
            followed = self._followed.get(subjects.channel(subscription.channel, subscription.id))
            if followed is None or subscription not in followed.takers:
                continue
            followed.takers.remove(subscription)
            subscription.end()
            if not followed.takers:
                del self._followed[followed.subject]
                if (heard := self._heard.pop(followed.subject, None)) is not None:
                    await self._base.unsubscribe(heard)
                ended.append(followed)
        await self._end(ended)

    async def _end(self, ended: list[Followed]) -> None:
        for at in range(0, len(ended), MOST):
            listed = [ChannelId(followed.channel, followed.id) for followed in ended[at : at + MOST]]
            await wire.ask(self._base.nats, UnsubscribeChannels(self._client, listed), ANSWER_S)

    async def leave(self) -> None:
        """Close all subscriptions. A client without a name unsubscribes; a named one reports its position."""
        followed = list(self._followed.values())
        with contextlib.suppress(BadInput, nats.errors.Error, OSError):
            if followed and not self._returns:
                await self._end(followed)
            elif followed:
                await self.report_position(2.0)
        for channel in followed:
            for subscription in channel.takers:
                subscription.end()

    async def report_position(self, timeout_s: float = 1.0) -> None:
        """Fetch missed results after a reconnect and at intervals; then report this client's position to the hub."""
        base, now = self._base, self._state()
        clock = asyncio.get_running_loop().time()
        if now != self._caught_up or clock >= self._look_at:
            last = (await wire.ask(base.nats, SeenResults(self._client), timeout_s)).last
            if now != self._caught_up or last > self._checked_upto:
                if not await self._catch_up(list(self._followed.values())):
                    return
                self._caught_up, self._checked_upto = now, last
            self._look_at = clock + LOOK_S * (1 + len(self._followed) / 100)
        position = self._position
        # Results arrive over one connection in stream order, and their handlers start in that order. A gap is filled
        # before the result after it is delivered. So once all handlers have started and none is in progress, every
        # result up to the highest delivered one has been delivered.
        await asyncio.sleep(0)
        at_rest = not (self._under_way or base.unfinished) and now == self._state()
        if position > self._reported and at_rest:
            await wire.ask(base.nats, SeenResults(self._client, position), timeout_s)
            self._reported = position

    def _state(self) -> object:
        """A value that changes whenever a result may have been missed."""
        return self._base.wire, self._base.changes, self._base.nats.stats["reconnects"], self._missed

    async def recover(self) -> None:
        """Fetch the results that were missed while the base connection changed, without waiting for the next report."""
        if not await self._catch_up(list(self._followed.values())):
            self._missed += 1

    async def _catch_up(self, some: list[Followed]) -> bool:
        """Fetch the missed results of these subscriptions. Return False if some could not be fetched."""
        turn = asyncio.Semaphore(AT_ONCE)

        async def one(followed: Followed) -> None:
            async with turn:
                await self._count(followed, followed.catch_up(self._base.nats))

        try:
            last = await latest(self._base.nats, RESULTS, [followed.stored_as for followed in some])
            newest = {subject: places(message.headers)[0] for subject, message in last.items()}
            await asyncio.gather(
                *(one(followed) for followed in some if newest.get(followed.stored_as, 0) > followed.seen)
            )
        except (nats.errors.Error, TimeoutError, OSError) as error:
            log.debug("client %s: %r", self._client, error)
            return False
        return True
