"""A real fleet for tests."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

from helpers.processes import keep_allowed
from helpers.waiting import until
from trimtab.fleet.protocol import wire
from trimtab.fleet.sdk.client import connect
from trimtab.fleet.site.launch import Launch

if TYPE_CHECKING:
    from pathlib import Path

BROKERS = ("b1", "b2", "b3")


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

    def ask(self, subject: str, question: dict):
        async def ask():
            return await wire.ask(await self.launch.admin(), subject, question, 10.0)

        return self.do(ask())

    async def aask(self, subject: str, question: dict):
        return await asyncio.to_thread(self.ask, subject, question)

    async def move(self, **order) -> dict:
        ids = (await self.aask("admin.move", {"moves": [order]}))["moves"]

        async def over():
            return (await self.aask("admin.moves", {"ids": ids}))["moves"][0]["phase"] in ("done", "rolled back")

        await until(over)
        return (await self.aask("admin.moves", {"ids": ids}))["moves"][0]
