"""Which clients are linked to which topics at one broker, as they themselves say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable

    Match = Callable[[str, str], bool]  # topic, client

EXPIRE_S: Final = 4.0  # a client that has not reported for so long is gone


@dataclass(slots=True)
class Links:
    """Links open here. Times are the event loop's."""

    _seen: dict[tuple[str, str], float] = field(default_factory=dict)  # (topic, client) -> last heard of
    _roles: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _there: dict[str, float] = field(default_factory=dict)  # client at home here -> last heard of
    _waiting: list[tuple[Match, asyncio.Future[None]]] = field(default_factory=list)

    def open(self, topic: str, client: str, role: str) -> None:
        self._seen[topic, client] = asyncio.get_running_loop().time()
        self._roles.setdefault((topic, client), set()).add(role)

    def close(self, topic: str, client: str, role: str | None = None) -> None:
        roles = self._roles.get((topic, client))
        if roles is None:
            return
        roles.difference_update({role} if role else set(roles))
        if not roles:
            self._forget((topic, client))

    def heard_of(self, client: str, roles: dict[str, list[str]]) -> None:
        """The client lists all its links here, topic by topic: what is missing has ended."""
        for topic, each in roles.items():
            for role in each:
                self.open(topic, client, role)
            if each:
                self._roles[topic, client] = set(each)
        for topic, other in list(self._seen):
            if other == client and not roles.get(topic):
                self._forget((topic, client))

    def expire(self) -> None:
        limit = asyncio.get_running_loop().time() - EXPIRE_S
        for link in [link for link, seen in self._seen.items() if seen < limit]:
            self._forget(link)
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
        return {client for _, client in self._seen}

    def count(self, topic: str, role: str) -> int:
        return sum(role in roles for (name, _), roles in self._roles.items() if name == topic)

    def counts(self) -> dict[str, tuple[int, int]]:
        """Publishers and subscribers by topic."""
        counted: dict[str, list[int]] = {}
        for (topic, _), roles in self._roles.items():
            both = counted.setdefault(topic, [0, 0])
            both[0] += "pub" in roles
            both[1] += "sub" in roles
        return {topic: (both[0], both[1]) for topic, both in counted.items()}

    def by_client(self) -> dict[str, dict[str, list[str]]]:
        """Everybody who is here: topics, and roles in each."""
        listed: dict[str, dict[str, list[str]]] = {client: {} for client in self._there}
        for (topic, client), roles in self._roles.items():
            listed.setdefault(client, {})[topic] = sorted(roles)
        return listed

    async def gone(self, match: Match, wait_s: float) -> None:
        """Until no link for which ``match(topic, client)`` is left here."""
        if not any(match(*link) for link in self._seen):
            return
        waiter = (match, asyncio.get_running_loop().create_future())
        self._waiting.append(waiter)
        try:
            await asyncio.wait_for(waiter[1], wait_s)
        except TimeoutError:
            left = [client for topic, client in self._seen if match(topic, client)]
            raise BadInput(f"{len(left)} links are still there after {wait_s:g} s, of {left[0]} for one") from None
        finally:
            self._waiting.remove(waiter)

    def refuse(self, topic: str, client: str, reason: str) -> None:
        """A client says that it cannot leave."""
        for match, waiter in self._waiting:
            if not waiter.done() and any(
                match(*link) for link in self._seen if link[1] == client and topic in ("", link[0])
            ):
                waiter.set_exception(BadInput(reason))

    def _forget(self, link: tuple[str, str]) -> None:
        self._seen.pop(link, None)
        self._roles.pop(link, None)
        for match, waiter in self._waiting:
            if not waiter.done() and not any(match(*each) for each in self._seen):
                waiter.set_result(None)
