"""Which clients are linked to which topics at one broker, as they themselves say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Match = Callable[[str, str], bool]  # topic, client

EXPIRE_S: Final = 4.0  # a client that has not reported for so long is gone


@dataclass(slots=True, eq=False)
class _Wait:
    """Somebody waits until all links that match are gone."""

    match: Match
    left: set[tuple[str, str]]  # topic, client
    over: asyncio.Future[None]


@dataclass(slots=True)
class Links:
    """Links open here. Times are the event loop's.

    Everybody reports once a second, so what a report costs must not grow with how many there are.
    """

    _roles: dict[str, dict[str, set[str]]] = field(default_factory=dict)  # client -> topic -> what it does there
    _seen: dict[str, float] = field(default_factory=dict)  # client with links here -> last heard of
    _there: dict[str, float] = field(default_factory=dict)  # client at home here -> last heard of
    _waiting: list[_Wait] = field(default_factory=list)

    def open(self, topic: str, client: str, role: str) -> None:
        self._seen[client] = asyncio.get_running_loop().time()
        topics = self._roles.setdefault(client, {})
        if topic not in topics:
            for wait in self._waiting:
                if wait.match(topic, client):
                    wait.left.add((topic, client))
        topics.setdefault(topic, set()).add(role)

    def close(self, topic: str, client: str, role: str | None = None) -> None:
        roles = self._roles.get(client, {}).get(topic)
        if roles is None:
            return
        roles.difference_update({role} if role else set(roles))
        if not roles:
            self._forget(topic, client)

    def heard_of(self, client: str, roles: Mapping[str, Sequence[str]]) -> None:
        """The client lists all its links here, topic by topic: what is missing has ended."""
        for topic, each in roles.items():
            for role in each:
                self.open(topic, client, role)
            if each:
                self._roles[client][topic] = set(each)
        for topic in [topic for topic in self._roles.get(client, {}) if not roles.get(topic)]:
            self._forget(topic, client)

    def expire(self) -> None:
        limit = asyncio.get_running_loop().time() - EXPIRE_S
        for client in [client for client, seen in self._seen.items() if seen < limit]:
            for topic in list(self._roles[client]):
                self._forget(topic, client)
        for client in [client for client, seen in self._there.items() if seen < limit]:
            del self._there[client]

    def at_home(self, client: str, here: bool) -> None:
        """Whether it is at home here, links or not; one that leaves is nowhere."""
        if here:
            self._there[client] = asyncio.get_running_loop().time()
        else:
            self._there.pop(client, None)

    @property
    def clients(self) -> set[str]:
        return set(self._roles)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Publishers and subscribers by topic."""
        counted: dict[str, list[int]] = {}
        for topics in self._roles.values():
            for topic, roles in topics.items():
                both = counted.setdefault(topic, [0, 0])
                both[0] += "pub" in roles
                both[1] += "sub" in roles
        return {topic: (both[0], both[1]) for topic, both in counted.items()}

    def by_client(self) -> dict[str, dict[str, list[str]]]:
        """Everybody who is here: topics, and roles in each."""
        listed: dict[str, dict[str, list[str]]] = {client: {} for client in self._there}
        for client, topics in self._roles.items():
            listed[client] = {topic: sorted(roles) for topic, roles in topics.items()}
        return listed

    async def gone(self, match: Match, wait_s: float) -> None:
        """Until no link for which ``match(topic, client)`` is left here."""
        left = {(topic, client) for client, topics in self._roles.items() for topic in topics if match(topic, client)}
        if not left:
            return
        wait = _Wait(match, left, asyncio.get_running_loop().create_future())
        self._waiting.append(wait)
        try:
            done, _ = await asyncio.wait({wait.over}, timeout=wait_s)
            if not done:
                one = min(client for _, client in left)
                raise BadInput(f"{len(left)} links are still there after {wait_s:g} s, of {one} for one")
            wait.over.result()
        finally:
            self._waiting.remove(wait)

    def refuse(self, topic: str, client: str, reason: str) -> None:
        """A client says that it cannot leave."""
        for wait in self._waiting:
            if not wait.over.done() and any(who == client and topic in ("", what) for what, who in wait.left):
                wait.over.set_exception(BadInput(reason))

    def _forget(self, topic: str, client: str) -> None:
        topics = self._roles[client]
        del topics[topic]
        if not topics:
            del self._roles[client], self._seen[client]
        for wait in self._waiting:
            wait.left.discard((topic, client))
            if not wait.left and not wait.over.done():
                wait.over.set_result(None)
