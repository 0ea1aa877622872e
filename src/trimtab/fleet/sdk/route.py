"""A client's current route to one topic: broker, connection, subject, and the publisher and subscriptions using it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from trimtab.fleet.protocol import subjects
from trimtab.fleet.protocol.registry import entry_name
from trimtab.fleet.sdk.outbox import Outbox
from trimtab.fleet.sdk.reader import Reader
from trimtab.fleet.sdk.subscription import Subscription
from trimtab.model.key import Key

if TYPE_CHECKING:
    from collections.abc import Callable

    from trimtab.fleet.protocol.agent_verbs import Role
    from trimtab.fleet.protocol.entries import Topic, Version
    from trimtab.fleet.sdk.base import BaseSubscription
    from trimtab.fleet.sdk.delivery import Delivery
    from trimtab.fleet.sdk.turnstile import Turnstile
    from trimtab.fleet.sdk.wires import Wire


class Route:
    """A client's current route to one topic."""

    def __init__(self, topic: Topic, broker: str, to: Wire, use: object, start: Callable[[Any], Any]) -> None:
        self.topic = topic
        self.broker = broker
        self.wire = to
        self.use = use  # this route's user token of the wire; the wire stays open while it has users
        self.leaving: list[str] = []  # former brokers whose link is not closed yet
        self.subject = ""
        self.gate: Turnstile | None = None  # of the publisher; None before the first message
        self.changes: BaseSubscription | None = None  # to changes of this route
        self.newest: Version = (0, 0)  # of these changes
        self.subscriptions: list[Delivery] = []
        self.outbox = Outbox(topic, start) if topic.persistent else None
        self.sent_msgs = 0
        self.sent_bytes = 0
        self.moving = asyncio.Lock()

    @property
    def publishing(self) -> bool:
        return self.gate is not None

    def aim(self) -> None:
        """Publish over the route's current broker and connection from now on."""
        self.subject = self.topic.entrance(self.broker)
        if self.outbox is not None:
            self.outbox.aim(self.wire.nats, self.subject)

    @property
    def roles(self) -> list[Role]:
        roles: dict[Role, bool] = {"pub": self.publishing, "sub": bool(self.subscriptions)}
        return [role for role, has in roles.items() if has]

    @property
    def live(self) -> list[Subscription]:
        return [delivery for delivery in self.subscriptions if isinstance(delivery, Subscription)]

    @property
    def readers(self) -> list[Reader]:
        return [delivery for delivery in self.subscriptions if isinstance(delivery, Reader)]

    def changed_by(self, client: str) -> str:
        """The subject of registry changes that change this route, except changes of the client's home.

        The client always listens for changes of its home.
        """
        name = self.topic.name
        key = Key("link", name, client) if self.topic.unit == "link" else Key("topic", name, "")
        return subjects.change(entry_name(key))
