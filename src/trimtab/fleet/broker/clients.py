"""The agent's part that answers clients: their homes, their routes to topics, their reports."""

from __future__ import annotations

import contextlib
import logging
import zlib
from typing import TYPE_CHECKING

from trimtab.errors import BadInput, Unreachable, VersionMismatch
from trimtab.fleet.broker.counted import Counted
from trimtab.fleet.broker.telemetry import Tally
from trimtab.fleet.protocol import coding, names, subjects, wire
from trimtab.fleet.protocol.agent_verbs import (
    AddressBook,
    BrokerCoordinates,
    CloseLink,
    FindRoute,
    FlushTopic,
    FoundRoute,
    GetBrokers,
    GetCoordinates,
    Hello,
    Known,
    MakeReader,
    Opened,
    OpenLink,
    RefuseMove,
    ReportClient,
    Welcomed,
)
from trimtab.fleet.protocol.hub_verbs import Register
from trimtab.fleet.protocol.message import MESSAGE_ID, Stamper, as_reply
from trimtab.fleet.protocol.request import Done

if TYPE_CHECKING:
    from nats.aio.msg import Msg

    from trimtab.fleet.broker.agent import Agent
    from trimtab.fleet.protocol.request import Handler

log = logging.getLogger("trimtab.agent")


class ClientService:
    """Answers clients, with the registry, the links and the hosts of ``agent``."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        stock = f"{names.STOCK}{agent.broker}"
        self.tally = Tally(stock)
        self._counted = Counted()
        self._stamper = Stamper(stock)
        self._waiting: dict[str, Register] = {}  # registrations to send when the hub is reachable again
        self._addresses: AddressBook | None = None  # cached; None after a broker has changed

    def handlers(self) -> list[Handler]:
        return [
            Hello.answered_by(self._hello),
            GetBrokers.answered_by(self._brokers),
            FindRoute.answered_by(self._route),
            OpenLink.answered_by(self._open),
            CloseLink.answered_by(self._close),
            RefuseMove.answered_by(self._refuse),
            ReportClient.answered_by(self._report),
            MakeReader.answered_by(self._reader),
            FlushTopic.answered_by(self._flush),
            GetCoordinates.answered_by(self._coordinates),
        ]

    async def register_waiting(self) -> None:
        """Register the clients that came while the hub was unreachable."""
        for client, registration in list(self._waiting.items()):
            try:
                await wire.ask(self._agent.connection, registration, 2.0)
            except VersionMismatch:
                raise
            except BadInput as error:  # asking again would not help, and would keep the agent from its other work
                log.error("the hub refuses to register client %s: %s", client, error)
            if self._waiting.get(client) is registration:
                del self._waiting[client]

    async def _hello(self, request: Hello) -> Welcomed:
        """Register a client that has connected to this broker; it keeps its home if it has one."""
        agent, client = self._agent, names.client_name(request.client)
        wanted = request.home or agent.broker
        brokers = agent.registry.brokers()
        if wanted not in brokers and wanted != agent.broker:
            raise BadInput(
                f"there is no broker '{wanted}' to be the home of '{client}'; known: {', '.join(sorted(brokers))}"
            )
        registration = Register(client, wanted, bool(request.home), request.position, request.returns)
        home = agent.registry.home(client)
        try:
            home = (await wire.ask(agent.connection, registration, 2.0)).home
        except Unreachable:
            self._waiting[client] = registration
        book = self._address_book()
        return Welcomed(book.brokers, book.mark, home or wanted)

    async def _brokers(self, _: GetBrokers) -> AddressBook:
        return self._address_book()

    def _address_book(self) -> AddressBook:
        if self._addresses is None:
            urls = {name: about.urls for name, about in sorted(self._agent.registry.brokers().items())}
            self._addresses = AddressBook(urls, zlib.crc32(coding.to_json(urls)))
        return self._addresses

    def brokers_changed(self) -> None:
        self._addresses = None

    async def _route(self, request: FindRoute) -> FoundRoute:
        """Find a client's route to a topic. Sync with the hub before refusing, because the replica may be outdated."""
        agent, client, name = self._agent, request.client, names.topic_name(request.topic)
        try:
            broker = agent.registry.route(client, name)
        except BadInput:
            with contextlib.suppress(Unreachable):
                await agent.sync()
            broker = agent.registry.route(client, name)
        topic = agent.registry.topic(name)
        if not agent.registry.carrier(name, client):  # the hub does not know the client yet
            broker = agent.broker
        about = agent.registry.broker(broker)
        return FoundRoute(broker, about.urls if about else [], topic)

    async def _open(self, request: OpenLink) -> Opened:
        self._agent.links.open(request.topic, request.client, request.role)
        return Opened(self._agent.peers())

    async def _close(self, request: CloseLink) -> Done:
        self._agent.links.close(request.topic, request.client, request.role)
        return Done()

    async def _refuse(self, request: RefuseMove) -> Done:
        self._agent.links.refuse(request.topic, request.client, request.reason)
        return Done()

    async def _report(self, request: ReportClient) -> Known:
        """Handle the report that every client sends once a second."""
        agent, client = self._agent, request.client
        agent.links.update(client, request.links)
        here = request.home == agent.broker or request.home not in agent.alive  # or it failed over to here
        agent.links.at_home(client, here and not request.leaves)
        if request.position is not None:
            agent.positions.update(client, request.position, agent.registry.brokers())
        if self._counted.is_new(client, request.run, request.number):
            self.tally.client(client, request.topics)
        stale = {}
        for topic, broker in request.routes.items():
            try:
                now = agent.registry.route(client, topic)
            except BadInput:
                continue
            if now != broker and now in agent.alive:  # a client that failed over stays while that broker is away
                stale[topic] = await self._route(FindRoute(client, topic))
        home = agent.registry.home(client) or request.home
        return Known(stale, home, home in agent.alive, self._address_book().mark, await self._is_known(client))

    async def _coordinates(self, _: GetCoordinates) -> BrokerCoordinates:
        return BrokerCoordinates(self._agent.registry.coordinates())

    async def _is_known(self, client: str) -> bool:
        """Whether the hub knows this client; True if the hub cannot be asked."""
        agent = self._agent
        if agent.registry.home(client) is None and client not in self._waiting and agent.hub_is_there():
            with contextlib.suppress(Unreachable):
                await agent.sync()
                return agent.registry.home(client) is not None
        return True

    async def _reader(self, request: MakeReader) -> Done:
        """Create a durable reader's consumer. Clients lack the permission, because a consumer can be misused."""
        topic = self._agent.registry.topic(request.topic)
        if not topic.persistent:
            raise BadInput(f"topic '{topic.name}' is not persistent: nothing is stored that could be read later")
        await self._agent.hosting.store.add_consumer(topic.name, topic.broker, names.client_name(request.durable))
        return Done()

    async def _flush(self, request: FlushTopic) -> Done:
        host = self._agent.hosting.hosts.get(request.topic)
        if host is not None:
            await host.drained()
        return Done()

    async def enter(self, message: Msg) -> None:
        """Stamp and count a stock client's message, and publish it to the topic's entrance."""
        name = subjects.raw_topic(message.subject)
        if name is None:
            return
        self.tally.entered(name, len(message.data))
        publish, stamp = self._agent.connection.publish, self._stamper.next(name)
        topic = self._agent.registry.find_topic(name)
        if topic is None:
            await publish(subjects.deliver(name), message.data, reply=as_reply(stamp))
        elif topic.persistent:
            await publish(topic.entrance(topic.broker), message.data, headers={MESSAGE_ID: stamp})
        else:
            await publish(topic.entrance(self._agent.broker), message.data, reply=as_reply(stamp))
