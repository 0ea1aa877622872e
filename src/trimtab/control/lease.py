"""One leader at a time: a lease in the hub's key-value store, renewed twice a second.

No two processes' clocks are compared. A standby takes over by compare-and-set once it has seen no renewal for as long
as the lease is valid, by its own clock. A leader that cannot renew in time stops leading before that. A leader that
shuts down in order gives the lease back.
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
    """One candidate's handle on the lease. ``clock`` is monotonic, in seconds."""

    def __init__(self, bucket: KeyValue, me: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.me = me
        self._clock = clock
        self._bucket = bucket
        self._revision = 0  # revision of the entry at the last read
        self._since = clock()  # time at which that revision was first read
        self._renewed = -1e9  # time of this candidate's last renewal

    @property
    def held(self) -> bool:
        """Whether this candidate leads and no other can have taken the lease yet."""
        return self._clock() - self._renewed < VALID_S * 0.75

    async def try_to_hold(self) -> bool:
        """Renew the lease, or take it if it is free. Returns whether it is held now."""
        now = self._clock()
        try:
            entry = await self._bucket.get(KEY)
            holder: dict[str, Any] = json.loads(entry.value or b"{}")
            if entry.revision != self._revision:
                self._revision, self._since = entry.revision or 0, now
            free = not holder.get("leader") or now - self._since > VALID_S
            if holder.get("leader") != self.me and not free:
                self._renewed = -1e9
                return False
            last = entry.revision
        except KeyNotFoundError:
            last = None
        with contextlib.suppress(KeyWrongLastSequenceError):
            value = json.dumps({"leader": self.me}).encode()
            self._revision = await self._bucket.update(KEY, value, last=last)
            self._since = self._renewed = now
            return True
        self._renewed = -1e9
        return False

    async def give_back(self) -> None:
        if self.held:
            with contextlib.suppress(nats.errors.Error, TimeoutError, KeyWrongLastSequenceError):
                await self._bucket.update(KEY, json.dumps({"leader": ""}).encode(), last=self._revision)
        self._renewed = -1e9
