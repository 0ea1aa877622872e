"""A keeper without a server: its bucket is a dictionary, and nobody answers its requests."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from nats.errors import NoRespondersError
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NoKeysError

from trimtab.fleet.hub.keeper import Keeper
from trimtab.fleet.protocol.entries import BrokerEntry, write_entry
from trimtab.fleet.protocol.registry import broker_entry

if TYPE_CHECKING:
    import asyncio


class Entry:
    def __init__(self, value: bytes, revision: int) -> None:
        self.value = value
        self.revision = revision


class Bucket:
    """A key-value bucket in memory. ``failures`` are raised by the next calls, one each; None lets a call pass."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.revision = 0
        self.failures: list[tuple[str, Exception | None, bool]] = []  # method, error, whether it is carried out first

    def _set(self, name: str, value: bytes) -> int:
        self.revision += 1
        self.entries[name] = Entry(value, self.revision)
        return self.revision

    def _fails(self, method: str) -> tuple[Exception | None, bool]:
        if self.failures and self.failures[0][0] == method:
            _, error, done = self.failures.pop(0)
            return error, done
        return None, False

    async def keys(self) -> list[str]:
        if not self.entries:
            raise NoKeysError
        return list(self.entries)

    async def get(self, name: str) -> Entry:
        if (error := self._fails("get")[0]) is not None:
            raise error
        if name not in self.entries:
            raise KeyNotFoundError
        return self.entries[name]

    async def put(self, name: str, value: bytes) -> int:
        error, done = self._fails("put")
        if error is None or done:
            self._set(name, value)
        if error is not None:
            raise error
        return self.revision

    async def update(self, name: str, value: bytes, last: int | None = None) -> int:
        error, done = self._fails("update")
        if error is not None and not done:
            raise error
        at = self.entries[name].revision if name in self.entries else 0
        if at != (last or 0):
            raise KeyWrongLastSequenceError(description=f"wrong last sequence: {at}")
        self._set(name, value)
        if error is not None:
            raise error
        return self.revision

    async def purge(self, name: str) -> bool:
        self.entries.pop(name, None)
        return True


class Connection:
    """Notes what is published and subscribed to."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []
        self.subscribed: list[str] = []
        self.ping_error: Exception | None = None
        self.is_connected = True
        self.stats = {"reconnects": 0}
        self.purged: list[tuple[str, str]] = []  # stream, subject

    async def publish(self, subject: str, data: bytes = b"", **_: object) -> None:
        self.published.append((subject, data))

    def jetstream(self) -> Connection:
        return self

    async def purge_stream(self, stream: str, *, subject: str) -> None:
        self.purged.append((stream, subject))

    async def request(self, subject: str, *_: object, **__: object) -> None:
        raise NoRespondersError

    async def subscribe(self, subject: str, **_: object) -> None:
        self.subscribed.append(subject)

    async def _send_ping(self, answered: asyncio.Future[None]) -> None:
        if self.ping_error is not None:
            raise self.ping_error
        answered.set_result(None)


def keeper_of(*alive: str, away: tuple[str, ...] = ()) -> Keeper:
    """A keeper with these brokers; those ``away`` are registered and do not call."""
    keeper = Keeper(Connection())
    keeper._store = Bucket()
    for number, name in enumerate((*alive, *away), 1):
        keeper._store._set(broker_entry(name), write_entry(BrokerEntry([])))
        keeper.registry.apply(broker_entry(name), BrokerEntry([]), number)
    start = keeper.presence._at = time.monotonic()
    for second in range(1, 6):  # long enough for the keeper to be sure
        keeper.presence.tick(start + second, hears=True)
        for name in alive:
            keeper.presence.called(name)
    return keeper
