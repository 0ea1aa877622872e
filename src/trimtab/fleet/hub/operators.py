"""The keeper's part that answers operators: registry entries, cordons, coordinates, link placements, moves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

from msgspec.structs import replace

from trimtab.errors import BadInput, Moving, UnknownName
from trimtab.fleet.protocol import names
from trimtab.fleet.protocol.admin_verbs import (
    Begun,
    ChannelState,
    CordonBroker,
    Count,
    DrainBroker,
    Entries,
    ForgetBroker,
    ListBrokers,
    ListChannels,
    ListClients,
    ListCordons,
    ListLinks,
    ListMoves,
    ListTopics,
    MoveRecords,
    PlacedLink,
    PlaceLinks,
    SetTopic,
    StartMoves,
    UncordonBroker,
)
from trimtab.fleet.protocol.entries import BrokerEntry, ClientEntry, CoordinateEntry, CordonEntry, LinkEntry, Topic
from trimtab.fleet.protocol.hub_verbs import ReportCoordinate
from trimtab.fleet.protocol.registry import broker_entry, coordinate_entry, cordon_entry, entry_name, topic_entry
from trimtab.fleet.protocol.request import Done
from trimtab.model.key import Key, counted
from trimtab.observe.coordinates.node import possible

if TYPE_CHECKING:
    from trimtab.fleet.hub.keeper import Keeper
    from trimtab.fleet.protocol.request import Handler
    from trimtab.migrate.move import Move

    E = TypeVar("E")


DIMENSIONS: Final = 32  # most of a network coordinate


class Operators:
    """Answers operators, with the registry and the executor of moves of ``keeper``."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper

    def handlers(self) -> list[Handler]:
        return [
            ListTopics.answered_by(self._topics),
            ListClients.answered_by(self._clients),
            ListLinks.answered_by(self._links),
            ListBrokers.answered_by(self._brokers),
            ListChannels.answered_by(self._channels),
            ListCordons.answered_by(self._cordons),
            CordonBroker.answered_by(self._cordon),
            UncordonBroker.answered_by(self._uncordon),
            PlaceLinks.answered_by(self._place_links),
            SetTopic.answered_by(self._set_topic),
            ForgetBroker.answered_by(self._forget),
            StartMoves.answered_by(self._move),
            DrainBroker.answered_by(self._drain),
            ListMoves.answered_by(self._moves),
            ReportCoordinate.answered_by(self._coordinate),
        ]

    # The registry.

    async def _topics(self, request: ListTopics) -> Entries[Topic]:
        return self._listed(self._keeper.registry.topics(), request.reports)

    async def _clients(self, request: ListClients) -> Entries[ClientEntry]:
        return self._listed(self._keeper.registry.clients(), request.reports)

    async def _links(self, request: ListLinks) -> Entries[LinkEntry]:
        return self._listed(self._keeper.registry.links(), request.reports)

    async def _brokers(self, request: ListBrokers) -> Entries[BrokerEntry]:
        listed = self._listed(self._keeper.registry.brokers(), request.reports)
        listed.coordinates = self._keeper.registry.coordinates()
        return listed

    async def _channels(self, request: ListChannels) -> Entries[ChannelState]:
        return self._listed(await self._keeper.channels.states(), request.reports)

    async def _cordons(self, request: ListCordons) -> Entries[CordonEntry]:
        return self._listed(self._keeper.registry.cordons(), request.reports)

    async def _coordinate(self, request: ReportCoordinate) -> Done:
        """Store a broker's network coordinate, unless no broker can have it."""
        self._check_known(request.broker)
        if not possible(request.coordinate, min(len(request.coordinate.point), DIMENSIONS)):
            raise BadInput(f"broker '{request.broker}' reports a coordinate that cannot be right")
        if self._keeper.registry.coordinates().get(request.broker) != request.coordinate:
            await self._keeper.write(coordinate_entry(request.broker), CoordinateEntry(request.coordinate))
        return Done()

    async def _cordon(self, request: CordonBroker) -> Done:
        self._check_known(request.broker)
        await self._keeper.write(cordon_entry(request.broker), CordonEntry(request.reason or "by hand", time.time()))
        return Done()

    async def _uncordon(self, request: UncordonBroker) -> Done:
        self._check_known(request.broker)
        if request.broker not in self._keeper.registry.cordons():
            raise BadInput(f"broker '{request.broker}' is not cordoned")
        await self._keeper.write(cordon_entry(request.broker), None)
        return Done()

    def _listed(self, entries: dict[str, E], reports: bool) -> Entries[E]:
        keeper = self._keeper
        return Entries(entries, keeper.alive(), keeper.presence.heard(), keeper.reports() if reports else {})

    async def _place_links(self, request: PlaceLinks) -> Count:
        keeper = self._keeper
        for link in request.links:
            topic = keeper.registry.topic(link.topic)
            if topic.unit != "link":
                raise BadInput(f"topic '{topic.name}' is placed by {topic.unit}; only a topic of unit 'link' has links")
            names.client_name(link.client)
            if link.broker:
                keeper.check_target(link.broker)
            self._check_moving(link)
        for link in request.links:
            self._check_moving(link)  # a move may have begun while the links before it were written
            await keeper.write(entry_name(Key("link", link.topic, link.client)), LinkEntry(link.broker))
        return Count(len(request.links))

    def _check_moving(self, link: PlacedLink) -> None:
        """A link in a move cannot be placed: the move would write its own target over the placement."""
        if self._keeper.mover.moving(Key("link", link.topic, link.client)):
            raise Moving(
                f"the link of client '{link.client}' to topic '{link.topic}' is moving; "
                "place it again when the move is over"
            )

    async def _set_topic(self, request: SetTopic) -> Done:
        keeper, name = self._keeper, names.topic_name(request.name)
        replace(keeper.registry.topic(name), latency_ms=request.latency_ms)  # refuses a bad bound

        def bounded(topic: Topic | None) -> Topic | None:
            return None if topic is None else replace(topic, latency_ms=request.latency_ms)

        await keeper.write(topic_entry(name), bounded)
        return Done()

    async def _forget(self, request: ForgetBroker) -> Done:
        self._check_known(request.broker)
        if left := sorted(key for key, at in self._keeper.registry.table().brokers.items() if at == request.broker):
            raise BadInput(
                f"broker '{request.broker}' cannot be forgotten: it has {counted(left)} still, such as '{left[0].name}'"
            )
        self._keeper.presence.forget(request.broker)
        await self._keeper.write(broker_entry(request.broker), None)
        for entry in (cordon_entry(request.broker), coordinate_entry(request.broker)):
            if self._keeper.registry.get(entry) is not None:
                await self._keeper.write(entry, None)
        return Done()

    def _check_known(self, broker: str) -> None:
        brokers = self._keeper.registry.brokers()
        if broker not in brokers:
            raise UnknownName("broker", broker, sorted(brokers))

    # Moves.

    async def _move(self, request: StartMoves) -> Begun:
        """Start moves; all are checked before any starts."""
        keeper = self._keeper
        planned: list[Move] = []
        try:
            for order in request.moves:
                planned.append(keeper.mover.plan(order.key, keeper.check_target(order.to)))
        except BaseException:
            keeper.mover.forget(planned)
            raise
        return Begun(await self._start(planned))

    async def _start(self, planned: list[Move]) -> list[str]:
        """Start moves in order. If one cannot be started, it and the rest are dropped."""
        mover = self._keeper.mover
        begun: list[str] = []
        try:
            for move in planned:
                begun.append(await mover.start(move))
        except BaseException:
            mover.forget(planned[len(begun) :])
            raise
        return begun

    async def _drain(self, request: DrainBroker) -> Begun:
        """Cordon a broker and move all keys off it; it stays empty until it is uncordoned."""
        self._check_known(request.broker)
        planned = self._keeper.mover.plan_drain(request.broker)
        try:
            await self._cordon(CordonBroker(request.broker, request.reason or "drained"))
        except BaseException:
            self._keeper.mover.forget(planned)
            raise
        return Begun(await self._start(planned))

    async def _moves(self, request: ListMoves) -> MoveRecords:
        mover = self._keeper.mover
        records = mover.records(request.ids) if request.ids else mover.newest(request.most)
        return MoveRecords(records, mover.under_way)
