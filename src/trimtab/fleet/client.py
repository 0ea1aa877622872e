"""The SDK: publish, subscribe, create topics; follows every move by itself.

async with trimtab.connect(name="taxi-7") as client:
    await client.create_topic("taxi.gps")
    await client.subscribe("taxi.gps", lambda message: print(message.publisher, message.text))
    await client.publish("taxi.gps", "47.07,15.44")
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import random
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import names, wire
from trimtab.fleet.base import Base
from trimtab.fleet.channel_client import ChannelClient
from trimtab.fleet.credentials import CLIENT_FILE, read_secret
from trimtab.fleet.message import Stamper
from trimtab.fleet.reader import Reader
from trimtab.fleet.registry import Topic
from trimtab.fleet.route import Route
from trimtab.fleet.subscription import PENDING_MESSAGES, Subscription
from trimtab.fleet.turnstile import Turnstile
from trimtab.fleet.wires import Wires
from trimtab.observe.report import TopicReport

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from trimtab.fleet.delivery import Callback, Delivery
    from trimtab.fleet.results import ChannelSubscription, Result
    from trimtab.fleet.wires import Wire

log = logging.getLogger("trimtab.client")
REPORT_S: Final = 1.0
REFUGE_S: Final = 0.3  # a home may be away for so long before another broker is looked for
LEAVE_S: Final = 5.0  # a callback may take so long for what has arrived when its client is closed
TICK_S: Final = 0.05
HOME_VARIABLE: Final = "TRIMTAB_HOME"
DEFAULT_HOME: Final = ".trimtab"


def fleet_home() -> Path:
    """Where this machine's fleet keeps its files: $TRIMTAB_HOME, else .trimtab in the current folder."""
    return Path(os.environ.get(HOME_VARIABLE) or DEFAULT_HOME)


def connect(
    fleet: str | Path | None = None,
    *,
    name: str | None = None,
    home: str | None = None,
    position: tuple[float, float] | None = None,
    addresses: dict[str, str] | None = None,
) -> Client:
    """A client of the fleet whose client file (or the folder it is in) is ``fleet``; use it with ``async with``.

    ``name`` stays the same over restarts if the client should keep its home; ``home`` is the broker it would
    like at first; ``position`` is latitude and longitude in degrees; ``addresses`` are URLs by broker, where
    this client reaches brokers under other addresses than they know themselves by.
    """
    path = Path(fleet) if fleet is not None else fleet_home()
    if path.is_dir() or path.suffix != ".json":
        path = path / CLIENT_FILE
    known = read_secret(path, "start a fleet with trimtab up, or copy the file from the fleet's machine")
    return Client(known, name, home, position, addresses)


class Client:
    """A publisher and subscriber. Made by ``trimtab.connect``."""

    def __init__(
        self, known: dict[str, Any], name: str | None, home: str | None, position: tuple[float, float] | None,
        addresses: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.name = names.client_name(name or f"client-{secrets.token_hex(4)}")
        self.position = position
        self.home = ""
        self.moves = 0  # routes that were changed while in use
        self._wanted_home = home
        self._addresses = {broker: [url] for broker, url in (addresses or {}).items()}
        self._brokers: dict[str, list[str]] = known["brokers"] | self._addresses
        self._mark = 0  # of the addresses of brokers as they are known here
        self._wires = Wires(self.name, known["user"], known["password"], known.get("ca"), self._on_error)
        self._base = Base()
        self._routes: dict[str, Route] = {}
        self._subscriptions: list[Delivery] = []
        self._channels = ChannelClient(self.name, self._base, returns=name is not None)
        self._stamper = Stamper(self.name)
        self._closing = False
        self._gates: dict[str, Turnstile] = {}  # by topic: publishers pass in order, and wait while it is closed
        self._opening: dict[str, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    @property
    def serving(self) -> str:
        """The broker that this client is served by now, which is another than its home while that is away."""
        return self._base.wire.broker if self._base.nats.is_connected else ""

    async def __aenter__(self) -> Client:
        first = dict(self._brokers)
        wanted = self._wanted_home
        if wanted is not None and wanted not in first:
            known = ", ".join(sorted(first))
            raise BadInput(f"there is no broker '{wanted}' to be the home of '{self.name}'; known: {known}")
        order = sorted(first, key=lambda broker: broker != wanted)
        base = await self._wires.first([url for broker in order for url in first[broker]])
        try:
            question = {"client": self.name, "home": wanted, "position": self.position}
            answer = await self._ask_agent(base, "hello", question)
            self._know(answer)
            self.home = answer["home"]
            base.users.add(self)
            if self.home != base.broker:
                with contextlib.suppress(Unreachable):  # a home that is away; anybody can answer questions
                    better = await self._wires.to(self.home, self._brokers.get(self.home, []), self)
                    await self._wires.let_go(base, self)
                    base = better
            await self._base.settle(base)
            await self._base.hear(f"route.client.{self.name}", self._home_changed)
        except BaseException:
            await self._wires.close()
            raise
        for work in (self._ticks(), self._reports()):
            self._start(work)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True  # for Python 3.11's wait_for may swallow a cancellation
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channels.leave()
        leaving = (asyncio.wait_for(each.leave_all(), LEAVE_S) for each in self._subscriptions)
        await asyncio.gather(*leaving, return_exceptions=True)
        up = [each for each in self._wires if each.nats.is_connected]
        await asyncio.gather(*(self._report_to(each, links={}) for each in up), return_exceptions=True)
        await self._wires.close()

    # Topics.

    async def move_to(self, position: tuple[float, float]) -> None:
        """The client is somewhere else now: latitude and longitude in degrees."""
        self.position = position
        await self._ask_agent(self._base.wire, "hello", {"position": position})

    async def create_topic(self, name: str, **settings: Any) -> str:
        """Create a topic, or find that it exists with the same settings; where it is hosted.

        Settings: ``broker``, ``unit`` (topic, client or link), ``processor`` (module:function), ``spool``,
        ``limit_ms``, ``persistent``, ``replicas``.
        """
        Topic(name, **({"broker": ""} | settings))  # bad settings never leave this process
        question = {"name": name, **({"broker": ""} | settings)}
        if not question["broker"]:
            existing = await self.topic(name)
            question["broker"] = existing.broker if existing else self.home
        return str((await wire.ask(self._base.nats, "ask.hub.create", question, 35.0))["broker"])

    async def topic(self, name: str) -> Topic | None:
        """What is known of a topic; None if there is none of that name."""
        try:
            answer = await self._ask_agent(
                self._base.wire, "route", {"client": self.name, "topic": names.topic_name(name)}
            )
        except Unreachable:
            raise
        except BadInput as error:
            if "there is no topic" in str(error):
                return None
            raise
        return Topic(name, **answer["topic"])

    async def delete_topic(self, name: str) -> None:
        await wire.ask(self._base.nats, "ask.hub.delete", {"name": names.topic_name(name)}, 35.0)

    async def route(self, topic: str) -> str:
        """The broker that serves the topic to this client."""
        known = self._routes.get(topic)
        if known is not None:
            return known.broker
        return str((await self._ask_agent(self._base.wire, "route", {"client": self.name, "topic": topic}))["broker"])

    # Messages.

    async def publish(self, topic: str, data: bytes | str) -> None:
        """Send a message. To a persistent topic, this returns when the message is stored, and not before."""
        gate = self._gates.get(topic)
        if gate is not None and gate.busy:
            await gate.enter()
        route = self._routes.get(topic)
        if route is None or not route.publishing:
            route = await self._open_to_publish(topic)
        if isinstance(data, str):
            data = data.encode()
        if route.outbox is not None:
            route.outbox.check(data)  # before it gets a number, for a number that never comes holds up the others
            await route.outbox.send(data, self._stamper.next(topic))
        else:
            try:
                await route.wire.nats.publish(route.subject, data, self._stamper.next_reply(topic))
            except nats.errors.MaxPayloadError:
                self._stamper.undo(topic)
                limit = route.wire.nats.max_payload
                raise BadInput(f"a message of {len(data):,} bytes is over the limit of {limit:,}") from None
            except (nats.errors.OutboundBufferLimitError, nats.errors.ConnectionClosedError):
                self._stamper.undo(topic)
                raise Unreachable(f"broker '{route.broker}' is away, and no more can be kept for it") from None
        route.sent_msgs += 1
        route.sent_bytes += len(data)

    async def subscribe(
        self, topic: str, callback: Callback, *, durable: str | None = None, pending: int = PENDING_MESSAGES
    ) -> Delivery:
        """Call ``callback`` with every message, one at a time: a function, or a coroutine function.

        With ``durable``, of a persistent topic: from the oldest stored message on, or from where the reader
        of that name was. A message counts as read when the callback returns; one that raises comes again.
        """
        names.topic_name(topic)
        subscription: Delivery
        if durable is None:
            subscription = Subscription(topic, callback, pending)
        else:
            subscription = Reader(topic, callback, names.client_name(durable))
        try:
            await self._open(topic, subscription=subscription)
        except BaseException:
            await subscription.leave_all()
            await self._forget(topic)
            raise
        self._subscriptions.append(subscription)
        return subscription

    async def unsubscribe(self, subscription: Delivery) -> None:
        if subscription not in self._subscriptions:
            return
        self._subscriptions.remove(subscription)
        route = self._routes[subscription.topic]
        async with route.moving:
            route.subscriptions.remove(subscription)
            await subscription.leave_all()
            if not route.subscriptions:
                await self._tell(route.wire, "close", {"topic": route.topic.name, "role": "sub"})
        await self._forget(route.topic.name)

    async def flush(self) -> None:
        """Until the brokers have everything that was published."""
        for each in self._wires:
            await each.nats.flush()

    async def dead_letters(self, topic: str, callback: Any) -> None:
        """Call ``callback(data, reason)`` with every message of a topic that its processor failed on."""

        async def heard(raw: Any) -> None:
            result = callback(raw.data, (raw.headers or {}).get("Trimtab-Reason", ""))
            if asyncio.iscoroutine(result):
                await result

        await self._base.hear(names.dead(names.topic_name(topic)), heard)
        await self._base.nats.flush()

    # Channels.

    async def subscribe_channel(
        self, name: str, callback: Callable[[Result], Any] | None = None, /, **params: Any
    ) -> ChannelSubscription:
        """Results of a channel for these parameters: to ``callback``, or by iterating over what is returned.

        A client that was given a name gets what came while it was away when it subscribes again.
        """
        return (await self.subscribe_channels([(name, callback, params)]))[0]

    async def subscribe_channels(
        self, wanted: Sequence[tuple[str, Callable[[Result], Any] | None, dict[str, Any]]]
    ) -> list[ChannelSubscription]:
        """Many at once: channel, callback, parameters of each. The same one twice is answered twice."""
        return await self._channels.subscribe(wanted)

    async def unsubscribe_channel(self, subscription: ChannelSubscription) -> None:
        await self._channels.unsubscribe([subscription])

    async def unsubscribe_channels(self, subscriptions: Iterable[ChannelSubscription]) -> None:
        """Many at once."""
        await self._channels.unsubscribe(subscriptions)

    # Routes.

    async def _open_to_publish(self, topic: str) -> Route:
        """What is published meanwhile waits its turn."""
        gate = self._gates.setdefault(names.topic_name(topic), Turnstile())
        gate.close()
        try:
            return await self._open(topic, publishing=True)
        finally:
            gate.open()

    async def _open(self, topic: str, *, publishing: bool = False, subscription: Delivery | None = None) -> Route:
        """The route to a topic, with one more use."""
        async with self._opening.setdefault(topic, asyncio.Lock()):
            route = self._routes.get(topic)
            if route is None:
                answer = await self._ask_agent(self._base.wire, "route", {"client": self.name, "topic": topic})
                broker, record = answer["broker"], Topic(topic, **answer["topic"])
                self._brokers[broker] = self._addresses.get(broker) or answer["urls"] or self._brokers.get(broker, [])
                use = object()
                chosen = await self._wires.to(broker, self._brokers.get(broker, []), use)
                route = Route(record, broker, chosen, use, self._start)
                await self._listen_for_changes(route)
                self._routes[topic] = route
        async with route.moving:
            if subscription is not None:
                if isinstance(subscription, Reader):
                    await self._ask_agent(route.wire, "reader", {"topic": topic, "durable": subscription.durable})
                await subscription.listen(route.broker, route.wire.nats)
                await self._ask_agent(route.wire, "open", {"topic": topic, "client": self.name, "role": "sub"})
                subscription.joined(route.broker)
                route.subscriptions.append(subscription)
            if publishing and not route.publishing:
                await self._ask_agent(route.wire, "open", {"topic": topic, "client": self.name, "role": "pub"})
                route.aim()
                route.publishing = True
        return route

    async def _forget(self, topic: str) -> None:
        """A route that nobody uses any more is closed."""
        route = self._routes.get(topic)
        if route is not None and not route.subscriptions and not route.publishing:
            del self._routes[topic]
            await self._base.stop_hearing(route.changes(self.name))
            await self._wires.let_go(route.wire, route.use)

    async def _end(self, route: Route) -> None:
        """The topic was deleted, and all that was going on with it is over."""
        topic = route.topic.name
        async with route.moving:
            if self._routes.get(topic) is not route:
                return
            del self._routes[topic]
            self._subscriptions = [each for each in self._subscriptions if each not in route.subscriptions]
            if route.outbox is not None:
                route.outbox.end(BadInput(f"topic '{topic}' was deleted"))
            await self._base.stop_hearing(route.changes(self.name))
            await asyncio.gather(*(each.leave_all() for each in route.subscriptions), return_exceptions=True)
            await self._wires.let_go(route.wire, route.use)

    async def _home_changed(self, raw: Any) -> None:
        value = json.loads(raw.data)["value"]
        if value is not None and value["home"] != self.home:
            self._start(self._change_home(value["home"]))

    async def _change_home(self, home: str) -> None:
        old = self._base.wire
        try:
            new = await self._wires.to(home, await self._urls(home), self)
            if not new.nats.is_connected and new is not old:
                await self._wires.let_go(new, self)
                raise Unreachable(f"'{home}' does not answer")
        except (BadInput, nats.errors.Error, OSError) as error:
            await self._tell(
                old, "refuse", {"topic": "", "reason": f"client '{self.name}' cannot reach '{home}': {error}"}
            )
            return
        self.home = home
        await self._settle_at(new, old)

    async def _take_refuge(self) -> None:
        """The home is away: be served by another broker until it is back, or until this client has another one."""
        old, away = self._base.wire, self._base.wire.broker
        others = [broker for broker in self._brokers if broker != away]
        random.shuffle(others)  # or all who were there would run to the same one
        for broker in others:
            with contextlib.suppress(BadInput, nats.errors.Error, OSError):
                new = await self._wires.to(broker, self._brokers[broker], self, wait_s=REFUGE_S)
                if not new.nats.is_connected:
                    await self._wires.let_go(new, self)
                    continue
                await self._settle_at(new, old)
                log.info("client %s: %s is away; served by %s meanwhile", self.name, away, broker)
                return

    async def _settle_at(self, new: Wire, old: Wire) -> None:
        """Ask and hear there; links to topics placed by client go along, the others only lose a place to ask at."""
        if new is not old:
            await self._base.settle(new)
            if self._channels:
                with contextlib.suppress(BadInput, nats.errors.Error, OSError):
                    await self._channels.tell_position()
        follow = (self._follow(r, new.broker) for r in list(self._routes.values()) if r.topic.unit == "client")
        await asyncio.gather(*follow)
        if new is not old:
            await self._wires.let_go(old, self)

    async def _listen_for_changes(self, route: Route) -> None:
        """Hear of a route's change as it happens. Should one get lost, the next report brings it."""

        async def changed(raw: Any) -> None:
            value = json.loads(raw.data)["value"]
            if value is None and route.topic.unit != "link":
                self._start(self._end(route))
            elif value is not None and route.topic.unit != "client" and value["broker"]:
                self._start(self._follow(route, value["broker"]))

        await self._base.hear(route.changes(self.name), changed)

    async def _follow(self, route: Route, broker: str) -> None:
        """Make before break: open the new route, see that the old one is empty, close it."""
        async with route.moving:
            if route.broker == broker or self._routes.get(route.topic.name) is not route:
                return
            topic, old, left, used = route.topic.name, route.wire, route.broker, route.use
            # The store has moved already; until the new connection stands, that to the client's home reaches it too.
            between = self._wires.get(broker) or self._base.wire
            if route.outbox is not None and not route.topic.processor:
                route.outbox.aim(between.nats, names.keep(broker, topic))
            for reader in route.readers:
                await reader.listen(broker, between.nats)
            use, new = object(), None
            try:
                new = await self._wires.to(broker, await self._urls(broker), use)
                peers: list[str] = []
                for subscription in route.subscriptions:
                    await subscription.listen(broker, new.nats)
                for role in route.roles:
                    answer = await self._ask_agent(new, "open", {"topic": topic, "client": self.name, "role": role})
                    peers = answer["peers"]
                for subscription in route.subscriptions:
                    subscription.joined(broker)
            except (BadInput, nats.errors.Error, OSError) as error:
                for subscription in route.live:
                    await subscription.leave(broker)
                if new is not None:
                    await self._wires.let_go(new, use)
                reason = f"client '{self.name}' cannot reach '{broker}': {error}"
                await self._tell(old, "refuse", {"topic": topic, "reason": reason})
                return
            if route.publishing and route.topic.processor and route.topic.unit != "topic":
                # What went to the old broker must be processed before anything the new one gets.
                gate = self._gates[topic]
                gate.close()
                with contextlib.suppress(BadInput):
                    await self._ask_agent(old, "flush", {"topic": topic}, timeout_s=5.0)
            route.broker, route.wire, route.use = broker, new, use
            route.leaving.append(left)
            route.aim()
            if topic in self._gates:
                self._gates[topic].open()
            self.moves += 1
            if route.live:
                await old.emptied(new, peers)
            for subscription in route.live:
                await subscription.leave(left)
            self._start(self._leave_behind(route, old, left, used))

    async def _leave_behind(self, route: Route, old: Wire, left: str, used: object) -> None:
        """The end of a move, which need not hold up the next one."""
        for reader in route.readers:
            await reader.settle()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(old.nats.flush(), 2.0)
        route.leaving.remove(left)
        if left not in (*route.leaving, route.broker):
            await self._tell(old, "close", {"topic": route.topic.name})
        await self._wires.let_go(old, used)

    async def _urls(self, broker: str) -> list[str]:
        if broker not in self._brokers:
            await self._learn()
        return self._brokers.get(broker, [])

    async def _learn(self) -> None:
        """Where brokers are: one that was started anew may be at another address."""
        with contextlib.suppress(BadInput):
            self._know(await self._ask_agent(self._base.wire, "hello", {"position": self.position}))

    def _know(self, answer: dict[str, Any]) -> None:
        self._brokers |= answer["brokers"] | self._addresses
        self._mark = answer["mark"]

    async def _ask_agent(self, to: Wire, verb: str, question: dict[str, Any], timeout_s: float = 5.0) -> dict[str, Any]:
        return await wire.ask(to.nats, f"ask.{to.broker}.{verb}", {"client": self.name} | question, timeout_s)

    async def _tell(self, to: Wire, verb: str, question: dict[str, Any]) -> None:
        """Say it and do not wait; the next report says it again."""
        with contextlib.suppress(Exception):
            message = {"client": self.name} | question
            await to.nats.publish(f"ask.{to.broker}.{verb}", json.dumps(message).encode())

    # Time.

    def _start(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("client %s: %r", self.name, task.exception())

    async def _ticks(self) -> None:
        lost, refuge = 0, None
        while not self._closing:
            await asyncio.sleep(TICK_S)
            for subscription in list(self._subscriptions):
                await subscription.tick()
            base = self._base.wire
            lost = lost + 1 if not base.nats.is_connected and len(self._brokers) > 1 else 0
            if lost * TICK_S >= REFUGE_S and (refuge is None or refuge.done()):
                refuge = self._start(self._take_refuge())

    async def _reports(self) -> None:
        while not self._closing:
            await asyncio.sleep(REPORT_S)
            await self._mend()
            if self._channels:
                with contextlib.suppress(BadInput, nats.errors.Error, OSError):
                    await self._channels.tell_position()
            up = [each for each in self._wires if each.nats.is_connected]
            for error in await asyncio.gather(*(self._report_to(each) for each in up), return_exceptions=True):
                if isinstance(error, Exception) and not isinstance(error, BadInput):
                    log.error("client %s: %r", self.name, error)

    async def _mend(self) -> None:
        """nats-py gives a connection up for good on some errors of a server that starts anew, and a server may have
        started anew at another address: make another."""
        for route in list(self._routes.values()):
            if self._is_gone(route.wire) and not route.moving.locked():
                async with route.moving:
                    with contextlib.suppress(BadInput):
                        use = object()
                        route.wire = await self._wires.to(route.broker, self._brokers.get(route.broker, []), use)
                        route.use = use
                        for subscription in route.subscriptions:
                            subscription.lost(route.broker)
                            await subscription.listen(route.broker, route.wire.nats)
                        route.aim()
        if self._is_gone(self._base.wire):
            with contextlib.suppress(BadInput):
                await self._base.settle(await self._wires.to(self.home, self._brokers.get(self.home, []), self))

    def _is_gone(self, wire: Wire) -> bool:
        elsewhere = self._brokers.get(wire.broker, wire.urls) != wire.urls
        return wire.nats.is_closed or (elsewhere and not wire.nats.is_connected)

    async def _report_to(self, to: Wire, links: dict[str, list[str]] | None = None) -> None:
        topics: dict[str, Any] = {}
        routes = [route for route in self._routes.values() if route.broker == to.broker]
        for route in routes:
            report = TopicReport(in_msgs=route.sent_msgs, in_bytes=route.sent_bytes)
            route.sent_msgs = route.sent_bytes = 0
            for subscription in route.subscriptions:
                report.add(subscription.take_report())
            if encoded := report.encode():
                topics[route.topic.name] = encoded
        if links is None:
            here = (r for r in self._routes.values() if to.broker in (r.broker, *r.leaving))
            links = {route.topic.name: route.roles for route in here}
        followed = {route.topic.name: route.broker for route in routes if not route.moving.locked()}
        question = {
            "topics": topics, "links": links, "routes": followed, "home": self.home, "leaves": self._closing,
        }  # fmt: skip
        answer = await self._ask_agent(to, "report", question, timeout_s=2.0)
        if answer["brokers"] != self._mark:
            await self._learn()
        elsewhere = answer["home"] != self.home or (answer.get("home_alive") and to.broker != self.home)
        if elsewhere and to is self._base.wire:
            self._start(self._change_home(answer["home"]))
        for topic, better in answer["stale"].items():
            if topic in self._routes:
                self._brokers.setdefault(better["broker"], better["urls"])
                self._start(self._follow(self._routes[topic], better["broker"]))

    async def _on_error(self, error: Exception) -> None:
        slow = getattr(error, "sub", None)
        for subscription in self._subscriptions:
            if slow is not None and subscription.owns(slow):
                await subscription.drop(error)
                return
        log.debug("client %s: %s", self.name, error)
