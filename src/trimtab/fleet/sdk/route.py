"""How a client reaches one topic now: the broker, the connection, the subject, and who uses it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from trimtab.fleet.protocol import names
from trimtab.fleet.sdk.outbox import Outbox
from trimtab.fleet.sdk.reader import Reader
from trimtab.fleet.sdk.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.protocol.registry import Topic
    from trimtab.fleet.sdk.delivery import Delivery
    from trimtab.fleet.sdk.wires import Wire


class Route:
    """How a client reaches one topic now."""

    def __init__(self, topic: Topic, broker: str, to: Wire, use: object, start: Callable[[Any], Any]) -> None:
        self.topic = topic
        self.broker = broker
        self.wire = to
        self.use = use  # what keeps the wire open
        self.leaving: list[str] = []  # brokers that are not quite left yet
        self.subject = ""
        self.publishing = False
        self.subscriptions: list[Delivery] = []
        self.outbox = Outbox(topic, start) if topic.persistent else None
        self.sent_msgs = 0
        self.sent_bytes = 0
        self.moving = asyncio.Lock()

    def aim(self) -> None:
        """Where messages go from now on."""
        name = self.topic.name
        if self.topic.processor:
            self.subject = names.work(name) if self.topic.unit == "topic" else names.home(self.broker, name)
        elif self.topic.persistent:
            self.subject = names.keep(self.broker, name)
        else:
            self.subject = names.deliver(name)
        if self.outbox is not None:
            self.outbox.aim(self.wire.nats, self.subject)

    @property
    def roles(self) -> list[str]:
        return ["pub"] * self.publishing + ["sub"] * bool(self.subscriptions)

    @property
    def live(self) -> list[Subscription]:
        return [each for each in self.subscriptions if isinstance(each, Subscription)]

    @property
    def readers(self) -> list[Reader]:
        return [each for each in self.subscriptions if isinstance(each, Reader)]

    def changes(self, client: str) -> str:
        """Where the registry tells of a new route."""
        name = self.topic.name
        return f"route.link.{client}.{name}" if self.topic.unit == "link" else f"route.topic.{name}"
