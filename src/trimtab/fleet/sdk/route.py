"""How a client reaches one topic now: the broker, the connection, the subject, and who uses it."""

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
    from trimtab.fleet.protocol.entries import Topic
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
        self.subject = self.topic.entrance(self.broker)
        if self.outbox is not None:
            self.outbox.aim(self.wire.nats, self.subject)

    @property
    def roles(self) -> list[Role]:
        roles: dict[Role, bool] = {"pub": self.publishing, "sub": bool(self.subscriptions)}
        return [role for role, has in roles.items() if has]

    @property
    def live(self) -> list[Subscription]:
        return [each for each in self.subscriptions if isinstance(each, Subscription)]

    @property
    def readers(self) -> list[Reader]:
        return [each for each in self.subscriptions if isinstance(each, Reader)]

    def changes(self, client: str) -> str:
        """Where the registry tells of a new route. A client hears of its home's changes anyway."""
        name = self.topic.name
        key = Key("link", name, client) if self.topic.unit == "link" else Key("topic", name, "")
        return subjects.change(entry_name(key))
