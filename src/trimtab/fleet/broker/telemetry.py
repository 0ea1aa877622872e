"""Measurements of a broker's servers, once a second.

The server counts delivered messages per subscription, at no cost to the messages. The publishing side counts
publications: the SDK, or the agent for stock clients. A subscription to all topics could count them too, but it would
pull the traffic of all other brokers to this one.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from trimtab.fleet.protocol import subjects, wire
from trimtab.observe.report import BrokerReport, TopicReport

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.aio.msg import Msg

    from trimtab.observe.report import Published


class Tally:
    """Messages that clients have published and received since the last report, as the clients count them.

    Publications of stock clients are counted under the name ``stock``.
    """

    def __init__(self, stock: str) -> None:
        self._stock = stock
        self._topics: dict[str, TopicReport] = {}
        self._published: Published = {}

    def client(self, client: str, topics: dict[str, TopicReport]) -> None:
        for topic, counted in topics.items():
            self._topics.setdefault(topic, TopicReport()).add(counted)
            if counted.in_bytes:
                self._add_published(client, topic, counted.in_bytes)

    def entered(self, topic: str, size: int) -> None:
        """Count a stock client's message."""
        counted = self._topics.setdefault(topic, TopicReport())
        counted.in_msgs += 1
        counted.in_bytes += size
        self._add_published(self._stock, topic, size)

    def _add_published(self, client: str, topic: str, size: int) -> None:
        of_client = self._published.setdefault(client, {})
        of_client[topic] = of_client.get(topic, 0) + size

    def take_topics(self) -> dict[str, TopicReport]:
        topics, self._topics = self._topics, {}
        return topics

    def take_published(self) -> Published:
        """Published bytes by client and topic since the last call."""
        published, self._published = self._published, {}
        return published


class Telemetry:
    """Queries the broker's servers, each over a connection in its system account; the front is the first server."""

    def __init__(self, servers: list[Nats]) -> None:
        self._servers = servers
        self._totals: dict[tuple[int, str], int] = {}
        self._listed: dict[int, tuple[tuple[int, int], int, set[int]]] = {}  # of each server, at its last list
        self._delivered: dict[tuple[int, int, str, str], int] = {}  # (server, connection, subject, sid) -> messages
        self._at = time.time()
        self._own = 0  # total bytes of the fleet's own traffic at the last report
        self._of_clients = 0  # the part of it that clients cause
        self._queried = 0  # total bytes of the front's replies to this agent
        self._remotes = 0  # servers that the front is connected to
        self._exchanged = 0  # total bytes of statistics exchanged with other servers, and copied to this agent

    async def start(self) -> None:
        """Count the statistics that nats-servers send each other, of themselves and of their accounts' connections."""
        front = self._servers[0]

        async def count(message: Msg) -> None:
            sender = json.loads(message.data)["server"]["id"]
            # The front sends its own to every other server, and gets theirs once; this agent gets a copy of each.
            copies = self._remotes if sender == front._server_info["server_id"] else 1
            self._exchanged += (copies + 1) * len(message.data)

        for subject in subjects.SERVER_STATISTICS:
            await front.subscribe(subject, cb=count)

    async def take(self, broker: str, topics: dict[str, TopicReport]) -> BrokerReport:
        """The report of the period that ends now. ``topics`` has the counts of clients and processors."""
        now = time.time()
        report = BrokerReport(broker, now, now - self._at, topics=topics, stock_subscriptions={})
        self._at = now
        delivered: dict[tuple[int, int, str, str], int] = {}
        for number in range(len(self._servers)):
            with contextlib.suppress(Exception):  # a restarting server does not answer
                statistics = await self._load(report, number)
                await self._stock(report, number, statistics, delivered)
        self._delivered = delivered
        # Bytes that an agent exchanges with another process cross the server twice: in and out.
        own = 2 * wire.CROSSED["bytes"] + self._queried + self._exchanged
        report.own_bytes, self._own = own - self._own, own
        of_clients = 2 * wire.CROSSED["clients"]
        report.client_bytes, self._of_clients = of_clients - self._of_clients, of_clients
        return report

    async def _ask(self, number: int, what: str, options: dict[str, Any]) -> dict[str, Any]:
        return dict(json.loads(await self._reply(number, what, options))["data"])

    async def _reply(self, number: int, what: str, options: dict[str, Any]) -> bytes:
        server = self._servers[number]
        identity = server._server_info["server_id"]
        reply = await server.request(subjects.server_request(identity, what), json.dumps(options).encode(), timeout=1)
        if number == 0:  # replies of a store do not pass the front, whose traffic is the broker's
            self._queried += len(reply.data)
        return bytes(reply.data)

    async def _load(self, report: BrokerReport, number: int) -> dict[str, Any]:
        statistics = await self._ask(number, "VARZ", {})
        report.cpu += float(statistics["cpu"]) / 100.0
        report.memory_bytes += int(statistics["mem"])
        for name in ("in_msgs", "in_bytes", "out_msgs", "out_bytes"):
            total = int(statistics[name])
            grown = max(0, total - self._totals.get((number, name), total))
            self._totals[number, name] = total
            if number == 0:  # traffic of a store also passes the front, and is counted there
                setattr(report, name, grown)
        if number == 0:
            self._remotes = int(statistics.get("remotes", 0)) + 1  # the other fronts and the hub
        return statistics

    async def _stock(
        self, report: BrokerReport, number: int, statistics: dict[str, Any],
        delivered: dict[tuple[int, int, str, str], int],
    ) -> None:  # fmt: skip
        """Count the subscriptions of stock clients, which do not report, and the messages delivered to them."""
        count, stock = await self._connections(number, statistics)
        report.connections += count
        report.stock += len(stock)
        if not stock:  # the usual case; the detailed reply is long
            return
        counted = report.stock_subscriptions
        assert counted is not None
        listing = await self._ask(number, "CONNZ", {"subscriptions_detail": True, "limit": 10_000})
        for connection in listing["connections"]:
            if connection["cid"] not in stock:
                continue
            for subscription in connection.get("subscriptions_list_detail", ()):
                subject = subscription["subject"]
                if (name := subjects.delivered_topic(subject)) is None:
                    continue
                key = (number, int(connection["cid"]), subject, str(subscription["sid"]))
                delivered[key] = int(subscription["msgs"])
                topic = report.topics.setdefault(name, TopicReport())
                topic.subscribers += 1
                counted[name] = counted.get(name, 0) + 1
                topic.out_msgs += max(0, delivered[key] - self._delivered.get(key, 0))

    async def _connections(self, number: int, statistics: dict[str, Any]) -> tuple[int, set[int]]:
        """The number of clients of a server, and the connections of stock clients.

        The list of all connections is long, so it is requested only if a connection has begun or ended.
        """
        version = int(statistics["total_connections"]), int(statistics["connections"])
        known, count, stock = self._listed.get(number, (None, 0, set()))
        if known != version:
            listing = await self._ask(number, "CONNZ", {"limit": 10_000})
            clients = [connection for connection in listing["connections"] if connection.get("kind") == "Client"]
            stock = {client["cid"] for client in clients if not str(client.get("name", "")).startswith("trimtab:")}
            count = len(clients)
            self._listed[number] = version, count, stock
        return count, stock
