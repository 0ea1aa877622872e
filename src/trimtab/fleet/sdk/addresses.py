"""Where a client reaches each broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.fleet.protocol.agent_verbs import AddressBook


class Addresses:
    """As it was told, but for brokers that it reaches under an address of its own."""

    def __init__(self, told: dict[str, list[str]], own: dict[str, str]) -> None:
        self._own = {broker: [url] for broker, url in own.items()}
        self._known = told | self._own
        self.mark = 0  # of all addresses as the fleet has told them last

    def learn(self, book: AddressBook) -> None:
        """A broker that was started anew may be at another address."""
        self._known |= book.brokers | self._own
        self.mark = book.mark

    def add(self, broker: str, urls: list[str]) -> None:
        if urls and broker not in self._own:
            self._known[broker] = urls

    def __getitem__(self, broker: str) -> list[str]:
        return self._known.get(broker, [])

    def __contains__(self, broker: object) -> bool:
        return broker in self._known

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._known))

    def __len__(self) -> int:
        return len(self._known)
