"""Takes over what brokers did while the hub was away: the topics that they have given to each other."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Final

import nats.errors

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.protocol.entries import Topic
from trimtab.fleet.protocol.registry import entry_key

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trimtab.fleet.hub.keeper import Keeper
    from trimtab.fleet.protocol.entries import Change

log = logging.getLogger("trimtab.keeper")
REASON: Final = "moved by its brokers while the hub was away"


class InterimChanges:
    """The keeper's part that writes interim changes into the registry.

    Only the host of a topic may give it away, so the host knows the highest term. A change that its host reports is
    written at once. A change that another broker reports is written only if the host is dead; until then, the one with
    the highest term is kept.
    """

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._highest: dict[str, Change] = {}  # by entry

    async def take_over(self, broker: str, changes: Iterable[Change]) -> None:
        """``changes`` came with the sync of ``broker``."""
        for change in changes:
            # If a change cannot be taken over now, the next sync brings it again.
            with contextlib.suppress(BadInput, Unreachable, nats.errors.Error, TimeoutError):
                await self._take_over(broker, change)

    async def _take_over(self, broker: str, change: Change) -> None:
        keeper, name = self._keeper, change.name
        known = self._highest.get(name, change)
        if keeper.registry.at(name) != change.revision:  # the keeper has changed it later, and its brokers follow
            self._highest.pop(name, None)
            return
        if known.revision == change.revision and known.term > change.term:
            change = known
        self._highest[name] = change
        key, topic = entry_key(name), change.entry()
        if key is None or key.unit != "topic" or not isinstance(topic, Topic) or topic.persistent or not change.term:
            return
        dead = keeper.presence.sure and topic.broker not in keeper.alive()
        if (topic.broker == broker or dead) and await keeper.mover.adopt(key, topic, change.revision, REASON):
            del self._highest[name]
            log.info("topic %s was given to %s", key.topic, topic.broker)
