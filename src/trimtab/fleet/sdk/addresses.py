"""The addresses at which a client reaches the brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.fleet.protocol.agent_verbs import AddressBook


class Addresses:
    """URLs by broker: those that the fleet announces, except where the application has given its own."""

    def __init__(self, announced: dict[str, list[str]], own: dict[str, str]) -> None:
        self._own = {broker: [url] for broker, url in own.items()}
        self._urls = announced | self._own
        self.mark = 0  # checksum of the newest address book

    def learn(self, book: AddressBook) -> None:
        """Take over a newer address book; a restarted broker may have another address."""
        self._urls |= book.brokers | self._own
        self.mark = book.mark

    def add(self, broker: str, urls: list[str]) -> None:
        if urls and broker not in self._own:
            self._urls[broker] = urls

    def __getitem__(self, broker: str) -> list[str]:
        return self._urls.get(broker, [])

    def __contains__(self, broker: object) -> bool:
        return broker in self._urls

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._urls))

    def __len__(self) -> int:
        return len(self._urls)
