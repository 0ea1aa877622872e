"""A client's routes to topics: opened at first use, moved when the registry changes, reconnected, closed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import nats.errors

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.protocol import coding, names, subjects, wire
from trimtab.fleet.protocol.agent_verbs import (
    CloseLink,
    FindRoute,
    FlushTopic,
    GetBrokers,
    MakeReader,
    OpenLink,
    RefuseMove,
    ReportClient,
)
from trimtab.fleet.protocol.entries import Change, LinkEntry, Topic
from trimtab.fleet.sdk.reader import Reader
from trimtab.fleet.sdk.reports import Reports
from trimtab.fleet.sdk.route import Route
from trimtab.fleet.sdk.turnstile import Turnstile
from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from trimtab.fleet.protocol.agent_verbs import FoundRoute
    from trimtab.fleet.sdk.base import Base
    from trimtab.fleet.sdk.delivery import Delivery
    from trimtab.fleet.sdk.wires import Wire, Wires

log = logging.getLogger("trimtab.client")
LAST_S: Final = 2.0  # limit for the confirmation of the last messages over an old connection
LEARN_S: Final = 1.0  # limit for the addresses of the brokers; a report waits for them


class Routes:
    """The routes by topic. ``start`` runs a coroutine as a background task."""

    def __init__(self, client: str, wires: Wires, base: Base, start: Callable[[Any], Any]) -> None:
        self._client = client
        self._wires = wires
        self._base = base
        self._start = start
        self._by_topic: dict[str, Route] = {}
        # By topic. Only the users of a lock or a gate keep it alive, so a topic that cannot be opened leaves nothing.
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._gates: WeakValueDictionary[str, Turnstile] = WeakValueDictionary()
        self.reports = Reports()
        self.moves = 0  # number of times that a route changed while in use

    def get(self, topic: str) -> Route | None:
        return self._by_topic.get(topic)

    def __iter__(self) -> Iterator[Route]:
        return iter(list(self._by_topic.values()))

    @property
    def deliveries(self) -> list[Delivery]:
        """The deliveries of all subscriptions."""
        return [delivery for route in self._by_topic.values() for delivery in route.subscriptions]

    # Opening and closing.

    def ready(self, topic: str) -> Route | None:
        """The route, if a message may be published on it right now."""
        route = self._by_topic.get(topic)
        return route if route is not None and route.gate is not None and not route.gate.busy else None

    async def to_publish(self, topic: str) -> Route:
        """Wait for this message's turn, open the route for publishing if needed, and return it."""
        gate = self._gates.setdefault(names.topic_name(topic), Turnstile())
        if gate.busy:
            await gate.enter()
        route = self._by_topic.get(topic)
        if route is not None and route.publishing:
            return route
        gate.close()  # messages published meanwhile wait for their turn
        try:
            while True:
                route = await self._open(topic)
                async with route.moving:
                    if not self._is_current(route):
                        continue  # closed while this task waited for its lock
                    if not route.publishing:
                        await route.wire.ask(OpenLink(self._client, topic, "pub"))
                        route.aim()
                        route.gate = gate
                    return route
        finally:
            gate.open()

    async def subscribe(self, subscription: Delivery) -> None:
        topic = subscription.topic
        try:
            added = False
            while not added:
                route = await self._open(topic)
                async with route.moving:
                    added = self._is_current(route)  # or the route was closed while this task waited for its lock
                    if added:
                        await self._add(subscription, route)
        except BaseException:
            await subscription.leave_all()
            await self._forget(topic)
            raise

    async def _add(self, subscription: Delivery, route: Route) -> None:
        topic = subscription.topic
        if isinstance(subscription, Reader):
            await route.wire.ask(MakeReader(self._client, topic, subscription.durable))
        await subscription.listen(route.broker, route.wire.nats)
        await route.wire.ask(OpenLink(self._client, topic, "sub"))
        subscription.joined(route.broker)
        route.subscriptions.append(subscription)

    async def unsubscribe(self, subscription: Delivery) -> None:
        route = self._by_topic.get(subscription.topic)
        if route is None:
            return
        async with route.moving:
            if subscription not in route.subscriptions:
                return
            route.subscriptions.remove(subscription)
            await subscription.leave_all()
            if not route.subscriptions:
                await route.wire.tell(CloseLink(self._client, subscription.topic, "sub"))
        await self._forget(subscription.topic)

    async def _open(self, topic: str) -> Route:
        async with self._opening.setdefault(topic, asyncio.Lock()):
            route = self._by_topic.get(topic)
            if route is None:
                answer, use = await self._base.wire.ask(FindRoute(self._client, topic)), object()
                self._wires.addresses.add(answer.broker, answer.urls)
                to = await self._wires.to(answer.broker, use)
                route = Route(answer.topic, answer.broker, to, use, self._start)
                try:
                    await self._listen_for_changes(route)
                except BaseException:
                    await self._wires.let_go(to, use)
                    raise
                self._by_topic[topic] = route
            return route

    def _is_current(self, route: Route) -> bool:
        """Whether the route is in use; a closed one is neither reported nor moved."""
        return self._by_topic.get(route.topic.name) is route

    async def _forget(self, topic: str) -> None:
        """Close the route if it has neither a publisher nor a subscription."""
        route = self._by_topic.get(topic)
        if route is None:
            return
        async with route.moving:  # another task may be about to add a subscription
            if self._is_current(route) and not route.subscriptions and not route.publishing:
                del self._by_topic[topic]
                if route.changes is not None:
                    await self._base.unsubscribe(route.changes)
                await self._wires.let_go(route.wire, route.use)

    async def _end(self, route: Route) -> None:
        """Close the route of a deleted topic, with its outbox and its subscriptions."""
        topic = route.topic.name
        async with route.moving:
            if not self._is_current(route):
                return
            del self._by_topic[topic]
            if route.outbox is not None:
                route.outbox.end(BadInput(f"topic '{topic}' was deleted"))
            if route.changes is not None:
                await self._base.unsubscribe(route.changes)
            await asyncio.gather(*(delivery.leave_all() for delivery in route.subscriptions), return_exceptions=True)
            await self._wires.let_go(route.wire, route.use)

    # Following.

    async def _listen_for_changes(self, route: Route) -> None:
        """Subscribe to changes of a route. If a notification is lost, the reply to the next report has the change."""

        async def changed(raw: Any) -> None:
            change = coding.decode(raw.data, Change)
            if change.version < route.newest:  # repeated by a broker that has missed a later one
                return
            route.newest, entry = change.version, change.entry()
            if entry is None and route.topic.unit != "link":
                self._start(self._end(route))
            elif isinstance(entry, Topic | LinkEntry) and route.topic.unit != "client" and entry.broker:
                self._start(self.follow(route, entry.broker))

        route.changes = await self._base.subscribe(route.changed_by(self._client), changed)

    async def follow_home(self, broker: str) -> None:
        """Move the routes of all topics placed by client to ``broker``."""
        await asyncio.gather(*(self.follow(route, broker) for route in self if route.topic.unit == "client"))

    async def follow(self, route: Route, broker: str) -> None:
        """Move a route, make before break: open the new one, wait until the old one is empty, close the old one."""
        async with route.moving:
            if route.broker == broker or not self._is_current(route):
                return
            topic, old, left, used = route.topic.name, route.wire, route.broker, route.use
            # The store has moved already. Until the new connection is open, the connection to the home reaches it too.
            between = self._wires.get(broker) or self._base.wire
            if route.outbox is not None and not route.topic.processor:
                route.outbox.aim(between.nats, subjects.keep(broker, topic))
            for reader in route.readers:
                await reader.listen(broker, between.nats)
            use, new = object(), None
            try:
                if broker not in self._wires.addresses:
                    await self.learn()
                new = await self._wires.to(broker, use)
                peers: list[str] = []
                for subscription in route.subscriptions:
                    await subscription.listen(broker, new.nats)
                for role in route.roles:
                    peers = (await new.ask(OpenLink(self._client, topic, role))).peers
                for subscription in route.subscriptions:
                    subscription.joined(broker)
            except (BadInput, nats.errors.Error, OSError) as error:
                for subscription in route.live:
                    await subscription.leave(broker)
                if new is not None:
                    await self._wires.let_go(new, use)
                reason = f"client '{self._client}' cannot reach '{broker}': {error}"
                await old.tell(RefuseMove(self._client, topic, reason))
                return
            gate = route.gate
            if gate and route.topic.processor and not route.topic.whole and old.nats.is_connected:
                # Messages sent to the old broker must be processed before those sent to the new one. A dead broker
                # processes nothing more, and publishers would wait for its answer in vain.
                gate.close()
                with contextlib.suppress(BadInput, nats.errors.Error, OSError):
                    await old.ask(FlushTopic(self._client, topic))
            route.broker, route.wire, route.use = broker, new, use
            route.leaving.append(left)
            route.aim()
            if gate is not None:
                gate.open()
            self.moves += 1
            if route.live:
                await old.emptied(new, peers)
            for subscription in route.live:
                await subscription.leave(left)
            self._start(self._leave_behind(route, old, left, used))

    async def _leave_behind(self, route: Route, old: Wire, left: str, used: object) -> None:
        """Finish a move in the background, so that it does not delay the next one."""
        for reader in route.readers:
            await reader.settle()
        with contextlib.suppress(Exception):
            await wire.ping(old.nats, LAST_S)
        route.leaving.remove(left)
        if left not in (*route.leaving, route.broker):
            await old.tell(CloseLink(self._client, route.topic.name))
        await self._wires.let_go(old, used)

    async def learn(self) -> None:
        """Fetch the current addresses of the brokers."""
        with contextlib.suppress(BadInput, Unreachable):  # the next report shows whether addresses are out of date
            self._wires.addresses.learn(await self._base.wire.ask(GetBrokers(), LEARN_S))

    async def mend(self) -> None:
        """Open a new connection for every route whose connection is lost for good."""
        for route in self:
            if self._wires.is_gone(route.wire) and not route.moving.locked():
                async with route.moving:
                    try:
                        if self._is_current(route):
                            await self._reconnect(route)
                    except (BadInput, nats.errors.Error, OSError) as error:  # tried again at the next report
                        level = logging.DEBUG if isinstance(error, Unreachable) else logging.WARNING
                        log.log(level, "client %s: topic %s: %r", self._client, route.topic.name, error)

    async def _reconnect(self, route: Route) -> None:
        use = object()
        new = await self._wires.to(route.broker, use)
        try:
            for subscription in route.subscriptions:
                subscription.lost(route.broker)
                await subscription.listen(route.broker, new.nats)
        except BaseException:
            await self._wires.let_go(new, use)
            raise
        route.wire, route.use = new, use
        route.aim()

    # Reporting.

    def report(self, broker: str, home: str, *, leaves: bool) -> ReportClient:
        """The report to a broker: traffic on its routes, links, and current routes."""
        number, topics = self.reports.next(broker, lambda: self._take_counts(broker))
        links = {} if leaves else {r.topic.name: r.roles for r in self if broker in (r.broker, *r.leaving)}
        routes = {r.topic.name: r.broker for r in self if r.broker == broker and not r.moving.locked()}
        return ReportClient(self._client, home, topics, links, routes, leaves, self.reports.run, number)

    def _take_counts(self, broker: str) -> dict[str, TopicReport]:
        """The traffic on the routes to a broker since the last call, by topic."""
        topics: dict[str, TopicReport] = {}
        for route in self:
            if route.broker != broker:
                continue
            report = TopicReport(in_msgs=route.sent_msgs, in_bytes=route.sent_bytes)
            route.sent_msgs = route.sent_bytes = 0
            for subscription in route.subscriptions:
                report.add(subscription.take_report())
            if report:
                topics[route.topic.name] = report
        return topics

    def follow_all(self, stale: dict[str, FoundRoute]) -> None:
        """Follow the new routes that the reply to a report lists."""
        for topic, better in stale.items():
            if (route := self._by_topic.get(topic)) is not None:
                self._wires.addresses.add(better.broker, better.urls)
                self._start(self.follow(route, better.broker))
