"""The links between clients and topics at one broker, as the clients report them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from trimtab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Match = Callable[[str, str], bool]  # topic, client

EXPIRE_S: Final = 4.0  # time without a report after which a client's links end


@dataclass(slots=True, eq=False)
class _Wait:
    """A caller that waits until all links that match have ended."""

    match: Match
    left: set[tuple[str, str]]  # topic, client
    over: asyncio.Future[None]


@dataclass(slots=True)
class Links:
    """The links open at this broker. Times are those of the event loop.

    Every client reports once a second, so the cost of a report must not grow with the number of clients.
    """

    _roles: dict[str, dict[str, set[str]]] = field(default_factory=dict)  # client -> topic -> roles
    _seen: dict[str, float] = field(default_factory=dict)  # client with links here -> time of its last report
    _residents: dict[str, float] = field(default_factory=dict)  # client at home here -> time of its last report
    _waiting: list[_Wait] = field(default_factory=list)
    _clients: dict[str, set[str]] = field(default_factory=dict)  # topic -> clients with links
    _since: dict[str, float] = field(default_factory=dict)  # topic -> time at which the first of these came
    _joined: set[str] = field(default_factory=set)  # topics that a client has joined since the last call of take_joined

    def open(self, topic: str, client: str, role: str) -> None:
        self._seen[client] = asyncio.get_running_loop().time()
        topics = self._roles.setdefault(client, {})
        if topic not in topics:
            for wait in self._waiting:
                if wait.match(topic, client):
                    wait.left.add((topic, client))
            if topic not in self._clients:
                self._clients[topic], self._since[topic] = set(), asyncio.get_running_loop().time()
            self._clients[topic].add(client)
            self._joined.add(topic)
        topics.setdefault(topic, set()).add(role)

    def close(self, topic: str, client: str, role: str | None = None) -> None:
        roles = self._roles.get(client, {}).get(topic)
        if roles is None:
            return
        roles.difference_update({role} if role else set(roles))
        if not roles:
            self._forget(topic, client)

    def update(self, client: str, roles: Mapping[str, Sequence[str]]) -> None:
        """Take over the client's list of all its links here, by topic; links not on the list have ended."""
        for topic, listed in roles.items():
            for role in listed:
                self.open(topic, client, role)
            if listed:
                self._roles[client][topic] = set(listed)
        for topic in [topic for topic in self._roles.get(client, {}) if not roles.get(topic)]:
            self._forget(topic, client)

    def expire(self) -> None:
        limit = asyncio.get_running_loop().time() - EXPIRE_S
        for client in [client for client, seen in self._seen.items() if seen < limit]:
            for topic in list(self._roles[client]):
                self._forget(topic, client)
        for client in [client for client, seen in self._residents.items() if seen < limit]:
            del self._residents[client]

    def at_home(self, client: str, here: bool) -> None:
        """Note whether a client is at home here, with or without links; a leaving client is at home nowhere."""
        if here:
            self._residents[client] = asyncio.get_running_loop().time()
        else:
            self._residents.pop(client, None)

    @property
    def residents(self) -> list[str]:
        """Clients that are at home here."""
        return list(self._residents)

    @property
    def clients(self) -> set[str]:
        return set(self._roles)

    def topics_of(self, clients: Iterable[str]) -> set[str]:
        """Topics to which any of these clients has a link here."""
        return {topic for client in clients for topic in self._roles.get(client, ())}

    def take_joined(self) -> set[str]:
        """Topics that a client has joined since the last call."""
        joined, self._joined = self._joined, set()
        return joined

    def since(self, topic: str) -> float:
        """When the first client of a topic came here; now if there is none."""
        return self._since.get(topic, asyncio.get_running_loop().time())

    def roles_by_client(self, topic: str) -> dict[str, set[str]]:
        """The clients of a topic, with their roles."""
        return {client: self._roles[client][topic] for client in self._clients.get(topic, ())}

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
        """All clients that are at home or have links here, with their roles by topic."""
        listed: dict[str, dict[str, list[str]]] = {client: {} for client in self._residents}
        for client, topics in self._roles.items():
            listed[client] = {topic: sorted(roles) for topic, roles in topics.items()}
        return listed

    async def gone(self, match: Match, wait_s: float) -> None:
        """Wait until no link is left here for which ``match(topic, client)`` is true."""
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
        """A client reports that it cannot move away: fail the callers that wait for its links to end."""
        for wait in self._waiting:
            matches = any(owner == client and topic in ("", name) for name, owner in wait.left)
            if not wait.over.done() and matches:
                wait.over.set_exception(BadInput(reason))

    def _forget(self, topic: str, client: str) -> None:
        topics = self._roles[client]
        del topics[topic]
        self._clients[topic].discard(client)
        if not self._clients[topic]:
            del self._clients[topic], self._since[topic]
        if not topics:
            del self._roles[client], self._seen[client]
        for wait in self._waiting:
            wait.left.discard((topic, client))
            if not wait.left and not wait.over.done():
                wait.over.set_result(None)
