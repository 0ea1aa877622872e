"""One leader at a time: a lease in the hub's key-value store, renewed twice a second.

Nobody's clock is compared with anybody else's. A standby waits until it has seen no renewal for as long as the lease is
valid, by its own clock, and then takes over by compare-and-set; a leader that could not renew in time stops leading
before that. Whoever leaves politely gives the lease back.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any, Final

import nats.errors
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.js.kv import KeyValue

KEY: Final = "leader"
RENEW_S: Final = 0.5
VALID_S: Final = 2.0


class LeaderLease:
    """The lease as one of its candidates sees it; ``clock`` gives seconds that never go back."""

    def __init__(self, bucket: KeyValue, me: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.me = me
        self._clock = clock
        self._bucket = bucket
        self._revision = 0  # of the entry as it was seen last
        self._since = clock()  # when that was seen first
        self._renewed = -1e9  # when this one renewed it last

    @property
    def held(self) -> bool:
        """Whether nobody else can have taken it."""
        return self._clock() - self._renewed < VALID_S * 0.75

    async def try_to_hold(self) -> bool:
        """Renew it, or take it if it is free; whether it is held now."""
        asked = self._clock()
        try:
            entry = await self._bucket.get(KEY)
            said: dict[str, Any] = json.loads(entry.value or b"{}")
            if entry.revision != self._revision:
                self._revision, self._since = entry.revision or 0, asked
            free = not said.get("leader") or asked - self._since > VALID_S
            if said.get("leader") != self.me and not free:
                self._renewed = -1e9
                return False
            last = entry.revision
        except KeyNotFoundError:
            last = None
        with contextlib.suppress(KeyWrongLastSequenceError):
            value = json.dumps({"leader": self.me}).encode()
            self._revision = await self._bucket.update(KEY, value, last=last)
            self._since = self._renewed = asked
            return True
        self._renewed = -1e9
        return False

    async def give_back(self) -> None:
        if self.held:
            with contextlib.suppress(nats.errors.Error, TimeoutError, KeyWrongLastSequenceError):
                await self._bucket.update(KEY, json.dumps({"leader": ""}).encode(), last=self._revision)
        self._renewed = -1e9
