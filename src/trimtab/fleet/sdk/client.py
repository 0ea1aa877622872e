"""The SDK: publish, subscribe, create topics; follows every move by itself.

async with trimtab.connect(name="taxi-7") as client:
    await client.create_topic("taxi.gps")
    await client.subscribe("taxi.gps", lambda message: print(message.publisher, message.text))
    await client.publish("taxi.gps", "47.07,15.44")
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.protocol import coding, names, subjects, wire
from trimtab.fleet.protocol.agent_verbs import FindRoute, Hello
from trimtab.fleet.protocol.entries import Change, ClientEntry, Topic
from trimtab.fleet.protocol.hub_verbs import CreateTopic, DeleteTopic
from trimtab.fleet.protocol.message import Stamper
from trimtab.fleet.protocol.registry import client_entry
from trimtab.fleet.sdk import arguments, client_file
from trimtab.fleet.sdk.addresses import Addresses
from trimtab.fleet.sdk.base import Base
from trimtab.fleet.sdk.channels import ChannelClient
from trimtab.fleet.sdk.dead_letters import DeadLetters
from trimtab.fleet.sdk.home import Home
from trimtab.fleet.sdk.position import Position
from trimtab.fleet.sdk.reader import Reader
from trimtab.fleet.sdk.routes import Routes
from trimtab.fleet.sdk.subscription import PENDING_MESSAGES, Subscription
from trimtab.fleet.sdk.wires import Wires

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from trimtab.fleet.sdk.delivery import Callback, Delivery
    from trimtab.fleet.sdk.results import ChannelSubscription, Result
    from trimtab.fleet.sdk.wires import Wire
    from trimtab.observe.coordinates.coordinate import Estimate

log = logging.getLogger("trimtab.client")
REPORT_S: Final = 1.0
LOST_S: Final = 0.3  # time without a connection to the home broker after which the client fails over
LEAVE_S: Final = 5.0  # limit per subscription for delivering the received messages when the client is closed
TICK_S: Final = 0.05
EXPLORE_S: Final = 0.0  # interval of measurements of brokers that the client is not connected to; 0: never


def connect(
    fleet: str | Path | None = None,
    *,
    name: str | None = None,
    home: str | None = None,
    position: tuple[float, float] | None = None,
    addresses: dict[str, str] | None = None,
    gateway: str | None = None,
    access_ms: float = 0.0,
    explore_s: float = EXPLORE_S,
) -> Client:
    """Make a client of a fleet; use it with ``async with``. ``fleet`` is the path of the client file or of its folder.

    A client keeps its home broker across restarts if it uses the same ``name`` each time. ``home`` is the preferred
    first home broker. ``position`` is latitude and longitude in degrees. ``addresses`` maps brokers to URLs and
    overrides the addresses that the brokers announce. With a ``gateway``, the client is attached to that broker from
    the start, as by ``Client.attach``. Every ``explore_s`` seconds, the client measures the round-trip time to a broker
    that it is not connected to; 0 means never.
    """
    attached = None if gateway is None else (names.broker_name(gateway), arguments.access_ms(access_ms))
    options = {"attached": attached, "explore_s": arguments.interval(explore_s)}
    return Client(client_file.read(fleet), name, home, position, addresses, **options)  # type: ignore[arg-type]


class Client:
    """A publisher and subscriber. Made by ``trimtab.connect``."""

    def __init__(
        self, content: dict[str, Any], name: str | None, home: str | None, position: tuple[float, float] | None,
        addresses: dict[str, str] | None = None, *, attached: tuple[str, float] | None = None,
        explore_s: float = EXPLORE_S,
    ) -> None:  # fmt: skip
        self.name = names.client_name(f"client-{secrets.token_hex(4)}" if name is None else name)
        self.position = None if position is None else arguments.position(position)
        self._wanted_home = None if home is None else names.broker_name(home)
        self._returns = name is not None
        self._addresses = Addresses(content["brokers"], {} if addresses is None else arguments.addresses(addresses))
        login = content["user"], content["password"], content.get("ca")
        self._wires = Wires(self.name, self._addresses, login, self._on_error)
        self._attached = attached
        self._network = Position(self.name, self._wires, explore_s)
        self._background = tasks.Background(f"client {self.name}", log)
        self._start = self._background.start
        self._base = Base(self.name, self._start)
        self._routes = Routes(self.name, self._wires, self._base, self._start)
        self._channels = ChannelClient(self.name, self._base, returns=self._returns)
        self._home = Home(self.name, self._wires, self._base, self._routes, self._channels, self._start)
        self._stamper = Stamper(self.name)
        self._closing = False

    @property
    def home(self) -> str:
        """The home broker; empty before the client is entered."""
        return self._home.broker

    @property
    def moves(self) -> int:
        """Number of times that a route changed while it was in use."""
        return self._routes.moves

    @property
    def serving(self) -> str:
        """The broker that serves this client now: its home, or another broker while the home is unreachable.

        Empty while the client has no connection.
        """
        return self._base.wire.broker if self._base.usable and self._base.nats.is_connected else ""

    async def __aenter__(self) -> Client:
        self._base.check_new()
        wanted = self._wanted_home
        if wanted is not None and wanted not in self._addresses:
            known = ", ".join(sorted(self._addresses))
            raise BadInput(f"there is no broker '{wanted}' to be the home of '{self.name}'; known: {known}")
        base = await self._wires.first(wanted)
        try:
            welcomed = await base.ask(self._hello(wanted))
            self._addresses.learn(welcomed)
            await self._home.enter(base, welcomed.home)
            await self._base.subscribe(subjects.change(client_entry(self.name)), self._home_changed)
            if self._attached is not None:
                self._network.attach(*self._attached)
        except BaseException:
            self._base.close()
            await self._wires.close()
            raise
        for work in (self._ticks(), self._reports(), self._network.run()):
            self._start(work)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._closing = True
        await self._background.end()
        await self._channels.leave()
        leaving = (tasks.within(LEAVE_S, delivery.finish()) for delivery in self._routes.deliveries)
        await asyncio.gather(*leaving, return_exceptions=True)
        connected = [opened for opened in self._wires if opened.nats.is_connected]
        await asyncio.gather(*(self._send_last_report(opened) for opened in connected), return_exceptions=True)
        await self._background.end()  # tasks that the replies to the last reports started
        self._base.close()  # last, because a callback may publish while the last messages are delivered
        await self._wires.close()

    # Topics.

    async def move_to(self, position: tuple[float, float]) -> None:
        """Tell the fleet the client's new position: latitude and longitude in degrees."""
        place = arguments.position(position)
        await self._base.wire.ask(Hello(self.name, position=place))
        self.position = place

    async def attach(self, gateway: str | None, *, access_ms: float = 0.0) -> None:
        """Say where the client is in the network: at a broker's site, ``access_ms`` away from it and back.

        For mobile clients that know their gateway. The client measures nothing until ``attach(None)``.
        """
        if gateway is None:
            self._network.detach()
        else:
            self._network.attach(names.broker_name(gateway), arguments.access_ms(access_ms))
        await asyncio.gather(*(self._report_to(opened) for opened in self._wires if opened.nats.is_connected))

    async def rtt(self, broker: str) -> Estimate:
        """The round-trip time to a broker: ``rtt_ms``, and whether it was ``measured`` or estimated by coordinates."""
        return await self._network.rtt(names.broker_name(broker), self._base.wire)

    async def create_topic(self, name: str, **settings: Any) -> str:
        """Create a topic, or do nothing if it exists with the same settings. Return the broker that hosts it.

        Settings: ``broker``, ``unit`` (topic, client or link), ``processor`` (module:function), ``spool``,
        ``limit_ms``, ``persistent``, ``replicas``, ``latency_ms`` (bound of the p90 of delivery times). The bound of a
        topic that exists stays as it is, since operators may have changed it with ``trimtab topic set``. The expected
        ``rate`` (messages/s) and ``processing_ms`` (CPU time of a message) of a topic with a processor help to choose a
        broker that keeps every bound; without them, other topics with that processor are the measure.
        """
        request = CreateTopic(arguments.topic(name, settings), self.position, arguments.expected(settings))
        return (await wire.ask(self._base.nats, request, 35.0)).broker

    async def topic(self, name: str) -> Topic | None:
        """The registry's entry of a topic; None if there is no topic of that name."""
        try:
            return (await self._base.wire.ask(FindRoute(self.name, names.topic_name(name)))).topic
        except UnknownName as error:
            if error.what == "topic":
                return None
            raise

    async def delete_topic(self, name: str) -> None:
        await wire.ask(self._base.nats, DeleteTopic(names.topic_name(name)), 35.0)

    async def route(self, topic: str) -> str:
        """The broker that serves the topic to this client."""
        self._base.check_usable()
        route = self._routes.get(names.topic_name(topic))
        if route is not None:
            return route.broker
        return (await self._base.wire.ask(FindRoute(self.name, topic))).broker

    # Messages.

    async def publish(self, topic: str, data: bytes | bytearray | memoryview | str) -> None:
        """Send a message. For a persistent topic, return only when the message is stored."""
        # A refused message must not use up a sequence number: subscribers would wait for the missing number.
        if type(data) is not bytes:
            data = arguments.payload(data)
        if not self._base.usable or type(topic) is not str:
            self._base.check_usable()
            names.topic_name(topic)
        route = self._routes.ready(topic) or await self._routes.to_publish(names.topic_name(topic))
        if route.outbox is not None:
            route.outbox.check(data)
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
        """Call ``callback``, a function or a coroutine function, with every message, one at a time.

        ``durable`` names a durable reader of a persistent topic. A new reader starts at the oldest stored message,
        an existing one at its last position. A message counts as read when the callback returns. If the callback
        raises an exception, the message is delivered again.
        """
        self._base.check_usable()
        names.topic_name(topic)
        arguments.callback(callback)
        subscription: Delivery = Subscription(topic, callback, arguments.pending(pending))
        if durable is not None:
            subscription = Reader(topic, callback, names.reader_name(durable))
        await self._routes.subscribe(subscription)
        return subscription

    async def unsubscribe(self, subscription: Delivery) -> None:
        self._base.check_usable()
        await self._routes.unsubscribe(arguments.subscription(subscription))

    async def flush(self, timeout_s: float = 10.0) -> None:
        """Wait until the brokers have received every published message. ``Unreachable`` after ``timeout_s``."""
        self._base.check_usable()
        limit_s = arguments.seconds(timeout_s)
        try:
            await tasks.within(limit_s, self._wires.flush())
        except TimeoutError:
            text = f"not every broker has confirmed all messages within {limit_s:g} s; they are still on their way"
            raise Unreachable(text, changed=True) from None

    async def dead_letters(self, topic: str, callback: Any) -> None:
        """Call ``callback(data, reason)`` with every message that the topic's processor failed on."""
        arguments.callback(callback)

        letters = DeadLetters(names.topic_name(topic), callback)
        await self._base.subscribe(subjects.dead(topic), letters.receive)
        await wire.confirmed(self._base.nats)

    # Channels.

    async def subscribe_channel(
        self, name: str, callback: Callable[[Result], Any] | None = None, /, **params: Any
    ) -> ChannelSubscription:
        """Subscribe to a channel's results for these parameters.

        Results go to ``callback``; without a callback, iterate over the returned subscription. A named client that
        subscribes again also gets the results that were stored while it was away.
        """
        return (await self.subscribe_channels([(name, callback, params)]))[0]

    async def subscribe_channels(
        self, wanted: Sequence[tuple[str, Callable[[Result], Any] | None, dict[str, Any]]]
    ) -> list[ChannelSubscription]:
        """Subscribe to many channels in one request; each item is channel, callback and parameters.

        An item that is listed twice gives two subscriptions.
        """
        checked = [arguments.wanted_channel(item) for item in arguments.listed(wanted, "subscriptions to channels")]
        return await self._channels.subscribe(checked)

    async def unsubscribe_channel(self, subscription: ChannelSubscription) -> None:
        await self.unsubscribe_channels([subscription])

    async def unsubscribe_channels(self, subscriptions: Iterable[ChannelSubscription]) -> None:
        """End many subscriptions to channels in one request."""
        listed = arguments.listed(subscriptions, "subscriptions to channels")
        await self._channels.unsubscribe([arguments.channel_subscription(item) for item in listed])

    # Home and registration.

    def _hello(self, home: str | None) -> Hello:
        return Hello(self.name, home, self.position, self._returns)

    async def _introduce(self) -> None:
        """Register again, after the fleet has removed this client from the registry because of a long absence."""
        with contextlib.suppress(BadInput, nats.errors.Error, OSError):
            await self._base.wire.ask(self._hello(self.home))
            await self._channels.renew()

    async def _home_changed(self, raw: Any) -> None:
        entry = coding.decode(raw.data, Change).entry()
        if isinstance(entry, ClientEntry) and entry.home != self.home:
            self._start(self._home.change(entry.home))

    # Time.

    async def _ticks(self) -> None:
        """Give up gaps and detect a lost home; nothing here waits for callbacks or for answers."""
        lost = 0
        while not self._closing:
            await asyncio.sleep(TICK_S)
            for subscription in self._routes.deliveries:
                subscription.tick()
            lost = lost + 1 if not self._base.nats.is_connected and len(self._addresses) > 1 else 0
            if lost * TICK_S >= LOST_S:
                self._background.start_once(self._home.take_refuge)

    async def _reports(self) -> None:
        """Report and mend once a second. Agents end the links of a client that does not report for four seconds, so
        everything runs as a task of its own: neither an error nor a slow answer or callback delays the next reports.
        """
        once = self._background.start_once
        while not self._closing:
            await asyncio.sleep(REPORT_S)
            once(self._mend)
            if self._channels:
                once(self._report_position)
            for opened in self._wires:
                if opened.nats.is_connected:
                    once(self._report_to, opened)

    async def _mend(self) -> None:
        await self._home.mend()
        await self._routes.mend()

    async def _report_position(self) -> None:
        with contextlib.suppress(BadInput, nats.errors.Error, OSError):
            await self._channels.report_position()

    async def _report_to(self, to: Wire) -> None:
        with contextlib.suppress(BadInput, Unreachable):  # the next report repeats the links and routes
            await self._send_report(to)

    async def _send_last_report(self, to: Wire) -> None:
        repeats = self._routes.reports.waits(to.broker)
        await self._send_report(to)
        if repeats:  # the counts since then
            await self._send_report(to)

    async def _send_report(self, to: Wire) -> None:
        report, reports = self._routes.report(to.broker, self.home, leaves=self._closing), self._routes.reports
        report.position = self._network.due(to.broker)
        try:
            answer = await to.ask(report, timeout_s=2.0)
        except BadInput as error:  # it would be refused again; without an answer, the next report repeats the counts
            log.warning("client %s: the broker '%s' refuses a report: %s", self.name, to.broker, error)
            reports.settle(to.broker, report.number)
            raise
        reports.settle(to.broker, report.number)
        if report.position is not None:
            self._network.settle(to.broker)
        if answer.mark != self._addresses.mark:
            await self._routes.learn()
        elsewhere = answer.home != self.home or (answer.home_alive and to.broker != self.home)
        if elsewhere and to is self._base.wire and not self._home.changing:
            self._start(self._home.change(answer.home))
        self._routes.follow_all(answer.stale)
        if not (answer.known or self._closing) and to is self._base.wire:
            self._background.start_once(self._introduce)

    async def _on_error(self, error: Exception) -> None:
        slow = getattr(error, "sub", None)
        for subscription in self._routes.deliveries:
            if slow is not None and subscription.owns(slow):
                await subscription.drop(error)
                return
        log.debug("client %s: %s", self.name, error)
