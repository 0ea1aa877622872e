"""What a broker's servers say about themselves, once a second.

Delivered messages per subscription come from the server at no cost to the messages; publishing is counted by
whoever publishes (the SDK, or the agent for stock clients), because a tap that listened to all topics would
pull the traffic of all other brokers here.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from trimtab.observe.report import BrokerReport, TopicReport

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats


class Telemetry:
    """Asks the servers behind ``system``, a connection in the system account."""

    def __init__(self, system: Nats) -> None:
        self._system = system
        self._totals: dict[str, int] = {}
        self._delivered: dict[tuple[int, str, str], int] = {}  # (connection, subject, sid) -> messages so far
        self._at = time.time()

    async def take(self, broker: str, topics: dict[str, TopicReport]) -> BrokerReport:
        """The report of the period that ends now; ``topics`` is what clients and processors have counted."""
        now = time.time()
        report = BrokerReport(broker, now, now - self._at, topics=topics)
        self._at = now
        with contextlib.suppress(Exception):  # a server that is starting again has nothing to say
            server = await self._ask("VARZ", {})
            report.cpu = float(server["cpu"]) / 100.0
            report.memory_bytes = int(server["mem"])
            for name in ("in_msgs", "in_bytes", "out_msgs", "out_bytes"):
                total = int(server[name])
                setattr(report, name, max(0, total - self._totals.get(name, total)))
                self._totals[name] = total
            await self._stock(report)
        return report

    async def _stock(self, report: BrokerReport) -> None:
        """Clients that do not report by themselves: their subscriptions, and what was delivered to them."""
        answer = await self._ask("CONNZ", {"subscriptions_detail": True, "limit": 10_000})
        connections = answer["connections"]
        report.connections = sum(c.get("kind") == "Client" for c in connections)
        delivered: dict[tuple[int, str, str], int] = {}
        for connection in connections:
            if connection.get("kind") != "Client" or str(connection.get("name", "")).startswith("trimtab:"):
                continue
            report.stock += 1
            for each in connection.get("subscriptions_list_detail", ()):
                subject = each["subject"]
                if not subject.startswith("t."):
                    continue
                key = (int(connection["cid"]), subject, str(each["sid"]))
                delivered[key] = int(each["msgs"])
                topic = report.topics.setdefault(subject[2:], TopicReport())
                topic.subscribers += 1
                topic.out_msgs += max(0, delivered[key] - self._delivered.get(key, 0))
        self._delivered = delivered

    async def _ask(self, what: str, options: dict[str, Any]) -> dict[str, Any]:
        server = self._system._server_info["server_id"]
        reply = await self._system.request(f"$SYS.REQ.SERVER.{server}.{what}", json.dumps(options).encode(), timeout=1)
        answer: dict[str, Any] = json.loads(reply.data)["data"]
        return answer
