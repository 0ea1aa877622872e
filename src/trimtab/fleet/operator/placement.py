"""The changes that bring a running fleet to a placement: keys to move, links to admit or refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.protocol.admin_verbs import MoveOrder, PlacedLink
from trimtab.fleet.protocol.names import STOCK
from trimtab.fleet.protocol.plans import Step
from trimtab.fleet.protocol.registry import entry_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trimtab.fleet.operator.state import FleetState
    from trimtab.model.key import Key


@dataclass(frozen=True, slots=True)
class Changes:
    """The differences between a fleet and a placement."""

    steps: tuple[Step, ...]  # keys that have a broker and get another one
    admitted: tuple[PlacedLink, ...]  # links that had no broker
    refused: tuple[PlacedLink, ...]  # links that are to have no broker
    stay: int = 0  # topics and clients without a broker in the placement: they keep their broker

    @property
    def any(self) -> bool:
        return bool(self.steps or self.admitted or self.refused)

    @property
    def orders(self) -> list[MoveOrder]:
        return [MoveOrder(step.key, step.target) for step in self.steps]

    @property
    def links(self) -> list[PlacedLink]:
        """Refusals first, since they make room."""
        return [*self.refused, *self.admitted]


def changes(state: FleetState, placement: Mapping[Key, str]) -> Changes:
    """The changes that bring keys to these brokers; an empty name means no broker.

    Raises ``BadInput`` for the first key that the fleet does not have, and refuses the first broker at which no key may
    be placed. Plain NATS and MQTT clients are left out, because they stay at the broker they are connected to.
    """
    current = state.routing().brokers
    waiting = state.waiting()
    steps, admitted, refused, stay = [], [], [], 0
    for key, broker in placement.items():
        if key.unit == "client" and key.client.startswith(STOCK) and key.client not in state.clients:
            continue
        _check_key(state, key)
        before = current.get(key, "")
        if broker and broker != before:
            state.check_target(broker)
        if broker and before and broker != before:
            if key.topic in waiting:
                raise Unreachable(f"topic '{key.topic}' waits for '{before}', where its messages are stored")
            steps.append(Step.of(key, before if before in state.alive else "", broker))
        elif key.unit == "link" and broker and not before:
            admitted.append(PlacedLink(key.client, key.topic, broker))
        elif key.unit == "link" and not broker:
            entry = state.links.get(entry_name(key).removeprefix("link."))
            if entry is None or entry.broker:
                refused.append(PlacedLink(key.client, key.topic, ""))
        elif not broker:
            stay += 1
    return Changes(tuple(steps), tuple(admitted), tuple(refused), stay)


def _check_key(state: FleetState, key: Key) -> None:
    elsewhere = "the placement was made for another workload"
    if key.topic:
        topic = state.topics.get(key.topic)
        if topic is None:
            raise BadInput(f"this fleet has no topic '{key.topic}': {elsewhere}")
        if topic.unit != key.unit:
            raise BadInput(f"topic '{key.topic}' of this fleet is placed by {topic.unit}, but the placement places "
                           f"{key}")  # fmt: skip
    if key.client and key.client not in state.clients:
        raise BadInput(f"this fleet has no client '{key.client}': {elsewhere}")
