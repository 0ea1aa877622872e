"""A real fleet of four sites with emulated distances."""

from __future__ import annotations

import asyncio
import threading

from helpers.processes import keep_allowed
from trimtab.fleet.broker.network import NetworkSettings
from trimtab.lab.live import LiveFleet


class Sites:
    """In a thread of its own, so that every test can have a loop of its own."""

    def __init__(self, rtt_ms) -> None:
        self._rtt_ms = rtt_ms
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        keep_allowed(self._thread)
        self._thread.start()
        self.fleet = LiveFleet(4, between_ms=10.0, network=NetworkSettings(probe_s=0.1))

    def do(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def start(self) -> None:
        self.do(self.fleet.__aenter__())
        for (one, other), rtt_ms in self._rtt_ms.items():
            self.fleet.set_rtt(one, other, rtt_ms)

    def stop(self) -> None:
        self.do(self.fleet.__aexit__())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
