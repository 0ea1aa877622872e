"""Dead letters: messages that a topic's processor failed on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from trimtab.fleet.sdk import callbacks

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.msg import Msg

REASON: Final = "Trimtab-Reason"  # the header that says why the processor failed
COPY_S: Final = 10.0  # limit between the two copies of a letter, which come over two connections at a change of home


class DeadLetters:
    """Calls a callback with every dead letter of a topic.

    While the base connection changes, a letter comes over the old and the new connection. Letters have no number of
    their own, so the second copy is recognised by its content and by its connection.
    """

    def __init__(self, topic: str, callback: Callable[..., Any]) -> None:
        self._topic = topic
        self._callback = callback
        self._recent: dict[int, tuple[float, object]] = {}  # hash -> event loop time, connection

    async def receive(self, raw: Msg) -> None:
        headers = raw.headers or {}
        if not self._is_copy(hash((raw.data, *headers.items())), raw._client):
            reason = headers.get(REASON, "")
            await callbacks.call(self._callback, (raw.data, reason), "the dead letters of topic %s failed", self._topic)

    def _is_copy(self, letter: int, connection: object) -> bool:
        now = asyncio.get_running_loop().time()
        while self._recent and now - next(iter(self._recent.values()))[0] > COPY_S:
            del self._recent[next(iter(self._recent))]
        _, first = self._recent.pop(letter, (0.0, connection))
        if first is not connection:
            return True
        self._recent[letter] = now, connection
        return False
