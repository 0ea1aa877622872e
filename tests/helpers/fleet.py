"""A real fleet for tests."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from typing import TYPE_CHECKING

from helpers.processes import keep_allowed
from helpers.waiting import until
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import DeclareChannels, ListMoves, MoveOrder, StartMoves
from trimtab.fleet.protocol.entries import ChannelEntry
from trimtab.fleet.protocol.streams import RESULTS
from trimtab.fleet.sdk.client import connect
from trimtab.fleet.site.launch import Launch
from trimtab.migrate.move import Phase
from trimtab.model.key import Key

if TYPE_CHECKING:
    from pathlib import Path

    from trimtab.fleet.protocol.entries import MoveRecord

BROKERS = ("b1", "b2", "b3")
_channels = itertools.count()


class RunningFleet:
    """Lives in a thread of its own, so that every test can have a loop of its own."""

    def __init__(self, home: Path, brokers=BROKERS, **options) -> None:
        self.home = home
        self.launch = Launch(home, **options)
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        keep_allowed(self._thread)
        self._thread.start()
        self.brokers = brokers

    def do(self, work):
        """Run a coroutine in the fleet's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def start(self) -> None:
        async def start():
            await self.launch.start_hub()
            for name in self.brokers:
                await self.launch.start_broker(name)
            await self.launch.ready(self.brokers)

        self.do(start())

    def stop(self) -> None:
        self.do(self.launch.__aexit__())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    # For tests: a client, a question to the keeper, a move seen to its end.

    def client(self, name: str, home: str = "b1", **more):
        return connect(self.home, name=name, home=home, **more)

    def ask(self, request, **more):
        async def ask():
            return await wire.ask(await self.launch.admin(), request, 10.0, **more)

        return self.do(ask())

    async def aask(self, request, **more):
        return await asyncio.to_thread(self.ask, request, **more)

    async def move(self, unit, to, topic="", client="") -> MoveRecord:
        ids = (await self.aask(StartMoves([MoveOrder(Key(unit, topic, client), to)]))).moves

        async def over():
            return Phase((await self.aask(ListMoves(ids))).moves[0].phase).over

        await until(over)
        return (await self.aask(ListMoves(ids))).moves[0]


class StoredChannel:
    """A channel whose results are stored message by message."""

    def __init__(self, fleet) -> None:
        self.name = f"stored-{next(_channels)}"
        self._fleet = fleet
        channel = ChannelEntry(self.name, {"kind": "string"}, 0.0, 60.0)
        fleet.ask(DeclareChannels(self.name, {self.name: channel}))

    async def follow(self, client, got, kind="fire"):
        return await client.subscribe_channel(self.name, got.append, kind=kind)

    def subscribers(self, subscription) -> bool:
        """Whether a second client follows it."""

        async def ask():
            jetstream = (await self._fleet.launch.admin()).jetstream()
            subjects = f"sub.{self.name}.{subscription.id}.*"
            return (await jetstream.stream_info("subscriptions", subjects_filter=subjects)).state.subjects or {}

        return len(self._fleet.do(ask())) > 1

    async def last(self):
        async def ask():
            return (await (await self._fleet.launch.admin()).jetstream().stream_info(RESULTS)).state.last_seq

        return await asyncio.to_thread(self._fleet.do, ask())

    async def store(self, subscription, *messages):
        async def put():
            jetstream = (await self._fleet.launch.admin()).jetstream()
            for content in messages:
                await jetstream.publish(f"res.{self.name}.{subscription.id}", json.dumps(content).encode())

        await asyncio.to_thread(self._fleet.do, put())

    async def execution(self, number, count=3):
        """The messages of a result in ``count`` parts."""
        after = await self.last()
        head = {"execution": number, "at": "then", "parts": count, "after": after}
        return [{**head, "part": at, "rows": [{"n": at}]} for at in range(count)]
