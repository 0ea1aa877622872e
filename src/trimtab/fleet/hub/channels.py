"""Subscriptions to channels, kept at the hub: who wants what, and what the data cluster must therefore compute.

Three streams of the hub hold it all, so the keeper that writes them remembers nothing:

    subscriptions   sub.CHANNEL.ID.CLIENT   one message for every subscriber of every subscription
    backend         be.CHANNEL.ID           a subscription came to be, or is no longer wanted by anybody
    results         res.CHANNEL.ID          answers; republished to c.CHANNEL.ID as they are stored

Subscriptions with the same channel and parameters have the same id, whoever makes them, so the cluster computes and
sends their results once (Nguyen, DEBS'19, 3.1: frontend and backend subscriptions). Subscribers listen to
c.CHANNEL.ID at their broker, and NATS carries one copy to each broker that has any.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import TYPE_CHECKING, Any, Final

from nats.js.api import RePublish, StorageType, StreamConfig
from nats.js.errors import NotFoundError

from trimtab.errors import BadInput, UnknownName
from trimtab.fleet.protocol import names
from trimtab.fleet.protocol.latest import latest
from trimtab.fleet.protocol.streams import BACKEND, LEDGER, MOST, RESULTS, SUBSCRIPTIONS, ledger_subject
from trimtab.fleet.protocol.types import check_value, subscription_id

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from nats.aio.client import Client as Nats
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

    from trimtab.fleet.protocol.registry import Registry

VERSIONS: Final = 8  # of a subscription's coming and going, so that an execution can be repeated as it was
RETENTION_S: Final = 86_400.0  # of results, unless a channel wants more
DUPLICATES_S: Final = 120.0
AT_ONCE: Final = 64  # messages on their way to be stored


async def make_stream(jetstream: JetStreamContext, config: StreamConfig) -> None:
    """Or bring it up to date."""
    try:
        await jetstream.stream_info(config.name or "")
    except NotFoundError:
        await jetstream.add_stream(config)
    else:
        await jetstream.update_stream(config)


class Channels:
    """The keeper's part. ``write`` changes the registry."""

    def __init__(
        self, connection: Nats, registry: Registry, write: Callable[[str, dict[str, Any] | None], Awaitable[int]]
    ) -> None:
        self._connection = connection
        self._registry = registry
        self._write = write
        self._positions: KeyValue
        self._changing = asyncio.Lock()  # subscriptions: what is known of them is read first, and written then

    async def start(self, positions: KeyValue) -> None:
        self._positions = positions
        for config in (
            StreamConfig(
                name=SUBSCRIPTIONS, subjects=["sub.*.*.*"], storage=StorageType.FILE, max_msgs_per_subject=1,
                allow_direct=True,
            ),
            StreamConfig(
                name=BACKEND, subjects=["be.*.*"], storage=StorageType.FILE, max_msgs_per_subject=VERSIONS,
                allow_direct=True,
            ),
            StreamConfig(
                name=RESULTS, subjects=["res.*.*"], storage=StorageType.FILE, max_age=self._retention_s(),
                allow_direct=True, duplicate_window=DUPLICATES_S, republish=RePublish(src="res.>", dest="c.>"),
            ),
        ):  # fmt: skip
            await make_stream(self._connection.jetstream(), config)

    def answers(self) -> dict[str, Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]]:
        return {
            "ask.hub.subscribe": self.subscribe,
            "ask.hub.unsubscribe": self.unsubscribe,
            "ask.hub.seen": self.seen,
            "admin.channels": self.declare,
        }

    async def entries(self) -> dict[str, dict[str, Any]]:
        """Every channel as it was declared, and how many rows of its results were too large to be sent."""
        known = self._registry.of_kind("channel")
        subjects = {name: ledger_subject(each["app"], "channel", name) for name, each in known.items()}
        executions: dict[str, Any] = {}
        with contextlib.suppress(NotFoundError):  # the first pipeline makes the ledger
            await self._connection.jetstream().stream_info(LEDGER)
            found = await latest(self._connection, LEDGER, list(subjects.values()))
            executions = {subject: json.loads(message.data) for subject, message in found.items()}
        none = {"left_out": 0, "reason": ""}
        last = {name: none | executions.get(subjects[name], {}) for name in known}
        return {name: {**each, **{key: last[name][key] for key in none}} for name, each in known.items()}

    def _retention_s(self) -> float:
        known = self._registry.of_kind("channel").values()
        return max([RETENTION_S, *(float(each["retention_s"]) for each in known)])

    async def declare(self, question: dict[str, Any]) -> dict[str, Any]:
        """The channels of an application, all of them; those it has no more end."""
        app, channels = names.client_name(question["app"]), question["channels"]
        known = self._registry.of_kind("channel")
        for name in channels:
            names.client_name(name)
            if name in known and known[name]["app"] != app:
                raise BadInput(f"there is a channel '{name}' already, of application '{known[name]['app']}'")
        for name, channel in channels.items():
            value = {"app": app, **channel}
            if known.get(name) != value:
                if name in known and known[name]["parameters"] != channel["parameters"]:
                    await self._forget(name)  # its subscriptions have other parameters
                await self._write(f"channel.{name}", value)
        for name, channel in known.items():
            if channel["app"] == app and name not in channels:
                await self._write(f"channel.{name}", None)
                await self._forget(name)
        await self.start(self._positions)
        return {"channels": len(channels)}

    async def _forget(self, channel: str) -> None:
        jetstream = self._connection.jetstream()
        await jetstream.purge_stream(SUBSCRIPTIONS, subject=f"sub.{channel}.*.*")
        await jetstream.purge_stream(BACKEND, subject=f"be.{channel}.*")

    async def subscribe(self, question: dict[str, Any]) -> dict[str, Any]:
        """``subscriptions`` is a list of channel and params; all are checked before any is made."""
        client = names.client_name(question["client"])
        wanted = question["subscriptions"]
        if len(wanted) > MOST:
            raise BadInput(f"{len(wanted):,} subscriptions in one request; {MOST:,} at most")
        checked = [(each["channel"], self._checked(each["channel"], each["params"])) for each in wanted]
        async with self._changing:
            position = await self._position(client)
            return {"subscriptions": await self._subscribe(client, checked), "position": position}

    def _checked(self, channel: str, params: dict[str, Any]) -> dict[str, Any]:
        known = self._registry.get(f"channel.{channel}")
        if known is None:
            raise UnknownName("channel", channel, sorted(self._registry.of_kind("channel")))
        types = known["parameters"]
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
        """Up to which result this client has seen everything; a new one begins with what comes from now on."""
        with contextlib.suppress(NotFoundError):
            entry = await self._positions.get(client)
            return int(json.loads(entry.value or b"0"))
        last = (await self._connection.jetstream().stream_info(RESULTS)).state.last_seq
        await self._positions.put(client, str(last).encode())
        return last

    async def _subscribe(self, client: str, wanted: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
        here = (await self._connection.jetstream().stream_info(RESULTS)).state.last_seq
        ids = [subscription_id(channel, params) for channel, params in wanted]
        own = [f"sub.{channel}.{identity}.{client}" for (channel, _), identity in zip(wanted, ids, strict=True)]
        shared = {
            f"be.{channel}.{identity}": params for (channel, params), identity in zip(wanted, ids, strict=True)
        }  # fmt: skip
        known = await latest(self._connection, SUBSCRIPTIONS, list(dict.fromkeys(own)))
        backend = await latest(self._connection, BACKEND, list(shared))
        since = {subject: int(json.loads(message.data)["since"]) for subject, message in known.items()}
        await self._store({subject: {"since": here} for subject in own if subject not in since})
        # Whoever is cut off here has no answer yet, asks again, and finds only the rest missing.
        await self._store({
            subject: {"on": True, "params": params}
            for subject, params in shared.items()
            if subject not in backend or not json.loads(backend[subject].data)["on"]
        })  # fmt: skip
        return [
            {"id": identity, "channel": channel, "since": since.get(subject, here)}
            for (channel, _), identity, subject in zip(wanted, ids, own, strict=True)
        ]  # fmt: skip

    async def _store(self, messages: dict[str, dict[str, Any]]) -> None:
        jetstream, turn = self._connection.jetstream(), asyncio.Semaphore(AT_ONCE)

        async def one(subject: str, value: dict[str, Any]) -> None:
            async with turn:
                await jetstream.publish(subject, json.dumps(value).encode())

        await asyncio.gather(*(one(*each) for each in messages.items()))

    async def unsubscribe(self, question: dict[str, Any]) -> dict[str, Any]:
        """``subscriptions`` is a list of channel and id."""
        client = names.client_name(question["client"])
        jetstream = self._connection.jetstream()
        for each in question["subscriptions"]:
            channel, identity = names.client_name(each["channel"]), names.client_name(each["id"])
            subject = f"be.{channel}.{identity}"
            async with self._changing:
                await jetstream.purge_stream(SUBSCRIPTIONS, subject=f"sub.{channel}.{identity}.{client}")
                info = await jetstream.stream_info(SUBSCRIPTIONS, subjects_filter=f"sub.{channel}.{identity}.*")
                if info.state.subjects:
                    continue
                known = (await latest(self._connection, BACKEND, [subject])).get(subject)
                if known is not None and json.loads(known.data)["on"]:
                    await self._store({subject: {"on": False, "params": {}}})
        return {}

    async def leave(self, client: str) -> None:
        """All subscriptions of a client, and where it was."""
        jetstream = self._connection.jetstream()
        info = await jetstream.stream_info(SUBSCRIPTIONS, subjects_filter=f"sub.*.*.{client}")
        parts = [subject.split(".") for subject in info.state.subjects or {}]
        listed = [{"channel": channel, "id": identity} for _, channel, identity, _ in parts]
        await self.unsubscribe({"client": client, "subscriptions": listed})
        await jetstream.purge_stream("KV_positions", subject=f"$KV.positions.{client}")

    async def seen(self, question: dict[str, Any]) -> dict[str, Any]:
        """A client has had all results up to this one, if it says so; where the newest is."""
        client, seq = names.client_name(question["client"]), question.get("seq")
        if seq is not None:
            await self._positions.put(client, str(int(seq)).encode())
        return {"last": (await self._connection.jetstream().stream_info(RESULTS)).state.last_seq}
