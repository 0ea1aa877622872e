"""Subscriptions to channels, stored at the hub: the subscribers, and the subscriptions that the data cluster computes.

Three streams of the hub hold the state; the keeper, which writes them, holds none:

    subscriptions   sub.CHANNEL.ID.CLIENT   one message for every subscriber of every subscription
    backend         be.CHANNEL.ID           a subscription got its first subscriber, or lost its last
    results         res.CHANNEL.ID          results; republished to c.CHANNEL.ID as they are stored

Subscriptions with the same channel and parameters have the same id, for all clients. So the cluster computes and
sends their results once (Nguyen, DEBS'19, 3.1: frontend and backend subscriptions). Subscribers listen to
c.CHANNEL.ID at their broker, and NATS carries one copy to each broker with subscribers.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
from nats.js.api import RePublish, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from trimtab.errors import BadInput, UnknownName
from trimtab.fleet.protocol import coding, names, subjects
from trimtab.fleet.protocol.admin_verbs import ChannelState, Count, DeclareChannels
from trimtab.fleet.protocol.hub_verbs import (
    BackendRecord,
    ChannelId,
    ChannelPlace,
    LastResult,
    LeftOut,
    SeenResults,
    SubscribeChannels,
    Subscribed,
    SubscriberRecord,
    UnsubscribeChannels,
)
from trimtab.fleet.protocol.latest import latest
from trimtab.fleet.protocol.registry import channel_entry
from trimtab.fleet.protocol.request import Done
from trimtab.fleet.protocol.streams import BACKEND, LEDGER, MOST, POSITIONS, RESULTS, SUBSCRIPTIONS
from trimtab.fleet.protocol.subjects import ANY
from trimtab.fleet.protocol.types import check_value, subscription_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

    from trimtab.fleet.protocol.entries import Entry
    from trimtab.fleet.protocol.registry import Registry
    from trimtab.fleet.protocol.request import Handler

VERSIONS: Final = 8  # begins and ends kept per subscription, so that an execution can be repeated as it was
RETENTION_S: Final = 86_400.0  # time that results are kept, unless a channel declares a longer one
DUPLICATES_S: Final = 120.0
AT_ONCE: Final = 64  # messages stored concurrently


async def make_stream(jetstream: JetStreamContext, config: StreamConfig) -> None:
    """Create a stream, or update the configuration of an existing one."""
    try:
        await jetstream.stream_info(config.name or "")
    except NotFoundError:
        await jetstream.add_stream(config)
    else:
        await jetstream.update_stream(config)


class Channels:
    """The keeper's part for channels. ``write`` changes the registry."""

    def __init__(
        self, connection: Nats, registry: Registry, write: Callable[[str, Entry | None], Awaitable[None]]
    ) -> None:
        self._connection = connection
        self._registry = registry
        self._write = write
        self._positions: KeyValue
        self._changing = asyncio.Lock()  # held while subscriptions are read and then written

    async def start(self, positions: KeyValue) -> None:
        self._positions = positions
        for config in (
            StreamConfig(
                name=SUBSCRIPTIONS, subjects=[subjects.subscriber(ANY, ANY, ANY)], storage=StorageType.FILE,
                max_msgs_per_subject=1, allow_direct=True,
            ),
            StreamConfig(
                name=BACKEND, subjects=[subjects.backend(ANY, ANY)], storage=StorageType.FILE,
                max_msgs_per_subject=VERSIONS, allow_direct=True,
            ),
            StreamConfig(
                name=RESULTS, subjects=[subjects.result(ANY, ANY)], storage=StorageType.FILE,
                max_age=self._retention_s(), allow_direct=True, duplicate_window=DUPLICATES_S,
                republish=RePublish(src=subjects.STORED_RESULTS, dest=subjects.HEARD_RESULTS),
            ),
        ):  # fmt: skip
            await make_stream(self._connection.jetstream(), config)

    def handlers(self) -> list[Handler]:
        return [
            SubscribeChannels.answered_by(self.subscribe),
            UnsubscribeChannels.answered_by(self.unsubscribe),
            SeenResults.answered_by(self.seen),
            DeclareChannels.answered_by(self.declare),
        ]

    async def states(self) -> dict[str, ChannelState]:
        """Every channel as declared, with the number of its result rows that were too large to be sent."""
        channels = self._registry.channels()
        subject = {name: subjects.ledger(channel.app, "channel", name) for name, channel in channels.items()}
        newest: dict[str, Msg] = {}
        with contextlib.suppress(NotFoundError):  # the ledger does not exist before the first pipeline runs
            await self._connection.jetstream().stream_info(LEDGER)
            newest = await latest(self._connection, LEDGER, list(subject.values()))
        states = {}
        for name, channel in channels.items():
            lost = coding.decode(newest[subject[name]].data, LeftOut) if subject[name] in newest else LeftOut()
            declared = msgspec.structs.asdict(channel)
            states[name] = ChannelState(**declared, left_out=lost.left_out, reason=lost.reason)
        return states

    def _retention_s(self) -> float:
        return max([RETENTION_S, *(channel.retention_s for channel in self._registry.channels().values())])

    async def declare(self, request: DeclareChannels) -> Count:
        """Declare all channels of an application; its channels that are not listed are removed."""
        app, channels = names.plain_name("application", request.app), request.channels
        declared = self._registry.channels()
        for name, channel in channels.items():
            names.channel_name(name)
            if name in declared and declared[name].app != app:
                raise BadInput(f"there is a channel '{name}' already, of application '{declared[name].app}'")
            if channel.app != app:
                raise BadInput(f"channel '{name}' is of application '{channel.app}', not of '{app}'")
        for name, channel in channels.items():
            if declared.get(name) != channel:
                if name in declared and declared[name].parameters != channel.parameters:
                    await self._forget(name)  # its subscriptions have other parameters
                await self._write(channel_entry(name), channel)
        for name, channel in declared.items():
            if channel.app == app and name not in channels:
                await self._write(channel_entry(name), None)
                await self._forget(name)
        await self.start(self._positions)
        return Count(len(channels))

    async def _forget(self, channel: str) -> None:
        jetstream = self._connection.jetstream()
        await jetstream.purge_stream(SUBSCRIPTIONS, subject=subjects.subscriber(channel, ANY, ANY))
        await jetstream.purge_stream(BACKEND, subject=subjects.backend(channel, ANY))

    async def subscribe(self, request: SubscribeChannels) -> Subscribed:
        """Make subscriptions; all are checked before any is made."""
        client, wanted = names.client_name(request.client), request.subscriptions
        if len(wanted) > MOST:
            raise BadInput(f"{len(wanted):,} subscriptions in one request; {MOST:,} at most")
        checked = [(item.channel, self._checked(item.channel, item.params)) for item in wanted]
        async with self._changing:
            position = await self._position(client)
            return Subscribed(await self._subscribe(client, checked), position)

    def _checked(self, channel: str, params: dict[str, Any]) -> dict[str, Any]:
        entry = self._registry.channel(channel)
        if entry is None:
            raise UnknownName("channel", channel, sorted(self._registry.channels()))
        types = entry.parameters
        for name in params:
            if name not in types:
                raise UnknownName(f"parameter of channel '{channel}'", name, sorted(types))
        for name in types:
            if name not in params:
                raise BadInput(f"channel '{channel}' needs the parameter '{name}' ({types[name]})")
        return {
            name: check_value(kind, params[name], f"parameter '{name}' of channel '{channel}'")
            for name, kind in types.items()
        }

    async def _position(self, client: str) -> int:
        """The sequence number up to which this client has seen all results; a new client starts at the newest."""
        with contextlib.suppress(NotFoundError):
            entry = await self._positions.get(client)
            return coding.decode(entry.value or b"0", int)
        last = (await self._connection.jetstream().stream_info(RESULTS)).state.last_seq
        await self._positions.put(client, str(last).encode())
        return last

    async def _subscribe(self, client: str, wanted: list[tuple[str, dict[str, Any]]]) -> list[ChannelPlace]:
        here = (await self._connection.jetstream().stream_info(RESULTS)).state.last_seq
        ids = [subscription_id(channel, params) for channel, params in wanted]
        own = [
            subjects.subscriber(channel, identity, client) for (channel, _), identity in zip(wanted, ids, strict=True)
        ]
        shared = {
            subjects.backend(channel, identity): params for (channel, params), identity in zip(wanted, ids, strict=True)
        }
        stored = await latest(self._connection, SUBSCRIPTIONS, list(dict.fromkeys(own)))
        backend = await latest(self._connection, BACKEND, list(shared))
        since = {subject: coding.decode(message.data, SubscriberRecord).since for subject, message in stored.items()}
        on = {subject for subject, message in backend.items() if coding.decode(message.data, BackendRecord).on}
        await self._store({subject: SubscriberRecord(here) for subject in own if subject not in since})
        # A client that is cut off here gets no reply and repeats its request. Then only missing records are stored.
        await self._store(
            {subject: BackendRecord(on=True, params=params) for subject, params in shared.items() if subject not in on}
        )
        return [
            ChannelPlace(channel, identity, since.get(subject, here))
            for (channel, _), identity, subject in zip(wanted, ids, own, strict=True)
        ]

    async def _store(self, messages: Mapping[str, SubscriberRecord | BackendRecord]) -> None:
        jetstream, turn = self._connection.jetstream(), asyncio.Semaphore(AT_ONCE)

        async def one(subject: str, value: SubscriberRecord | BackendRecord) -> None:
            async with turn:
                await jetstream.publish(subject, coding.encode(value))

        await asyncio.gather(*(one(subject, value) for subject, value in messages.items()))

    async def unsubscribe(self, request: UnsubscribeChannels) -> Done:
        client = names.client_name(request.client)
        for subscription in request.subscriptions:
            await self._unsubscribe(
                client, names.channel_name(subscription.channel), names.plain_name("subscription", subscription.id)
            )
        return Done()

    async def _unsubscribe(self, client: str, channel: str, identity: str) -> None:
        jetstream, subject = self._connection.jetstream(), subjects.backend(channel, identity)
        async with self._changing:
            await jetstream.purge_stream(SUBSCRIPTIONS, subject=subjects.subscriber(channel, identity, client))
            others = subjects.subscriber(channel, identity, ANY)
            if (await jetstream.stream_info(SUBSCRIPTIONS, subjects_filter=others)).state.subjects:
                return
            message = (await latest(self._connection, BACKEND, [subject])).get(subject)
            if message is not None and coding.decode(message.data, BackendRecord).on:
                await self._store({subject: BackendRecord(on=False)})

    async def leave(self, client: str) -> None:
        """Remove all subscriptions of a client, and its position."""
        jetstream = self._connection.jetstream()
        info = await jetstream.stream_info(SUBSCRIPTIONS, subjects_filter=subjects.subscriber(ANY, ANY, client))
        subscribers = [subjects.parse_subscriber(subject) for subject in info.state.subjects or {}]
        listed = [ChannelId(entry.channel, entry.id) for entry in subscribers if entry is not None]
        await self.unsubscribe(UnsubscribeChannels(client, listed))
        position = subjects.bucket_entry(POSITIONS, client)
        await jetstream.purge_stream(subjects.bucket_stream(POSITIONS), subject=position)

    async def seen(self, request: SeenResults) -> LastResult:
        """Store a client's position, if the request has one. Return the sequence number of the newest result."""
        client = names.client_name(request.client)
        if request.seq is not None:
            await self._positions.put(client, coding.encode(request.seq))
        return LastResult((await self._connection.jetstream().stream_info(RESULTS)).state.last_seq)
