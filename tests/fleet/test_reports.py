"""Traffic counts of clients arrive once, whatever becomes of a report or of its answer."""

from __future__ import annotations

import asyncio

import pytest

from helpers.waiting import always, until
from trimtab.errors import BadInput, NoAnswer
from trimtab.fleet.broker import counted
from trimtab.fleet.broker.counted import Counted
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.protocol.agent_verbs import ReportClient
from trimtab.fleet.sdk.reports import Reports
from trimtab.fleet.sdk.wires import Wire
from trimtab.observe.report import BrokerReport, TopicReport


def test_counts_are_sent_again_until_they_are_acknowledged():
    reports, fresh = Reports(), iter([{"t": TopicReport(in_msgs=1)}, {"t": TopicReport(in_msgs=2)}, {}])

    def take():
        return next(fresh)

    first = reports.next("b1", take)
    assert first == (1, {"t": TopicReport(in_msgs=1)})
    assert reports.next("b1", take) == first
    reports.settle("b1", 7)
    assert reports.waits("b1")

    reports.settle("b1", 1)
    assert not reports.waits("b1")
    assert reports.next("b1", take) == (2, {"t": TopicReport(in_msgs=2)})
    assert reports.next("b2", take) == (0, {})
    assert not reports.waits("b2")


def test_a_repeated_report_is_not_new_and_one_of_another_run_is():
    known = Counted()

    came = [("c", "r", 1), ("c", "r", 1), ("d", "r", 1), ("c", "r", 3), ("c", "r", 2), ("c", "s", 1), ("c", "s", 1)]

    assert [known.is_new(*each) for each in came] == [True, False, True, True, False, True, False]
    assert known.is_new("e", "", 0)
    assert known.is_new("e", "", 0)


def test_clients_that_reported_long_ago_are_forgotten_first(monkeypatch):
    monkeypatch.setattr(counted, "MOST", 2)
    known = Counted()

    for client in ("a", "b", "a", "c"):
        known.is_new(client, "r", 1)

    assert [known.is_new(client, "r", 1) for client in ("a", "c", "b")] == [False, False, True]


@pytest.mark.parametrize("arrives", [True, False])
@pytest.mark.parametrize("closes", [True, False])
def test_traffic_is_counted_once_although_reports_fail(fleet, topic, monkeypatch, arrives, closes):
    """A report may be lost, or only its answer."""
    real, failed, totals = Wire.ask, [], TopicReport()

    async def ask(self, request, timeout_s=5.0):
        if isinstance(request, ReportClient) and request.client.startswith("count-") and request.topics:
            failed.append(request)
            if len(failed) < (2 if closes else 3):  # the last report is sent only once
                if arrives:
                    await real(self, request, timeout_s)
                raise NoAnswer("no answer", changed=True)
        return await real(self, request, timeout_s)

    async def hear(raw):
        report = coding.decode(raw.data, BrokerReport)
        totals.add(report.topics.get(topic, TopicReport()))

    async def listen():
        return await (await fleet.launch.admin()).subscribe(subjects.telemetry("b1"), cb=hear)

    async def end(subscription):
        await subscription.unsubscribe()

    def counts():
        return totals.in_msgs, totals.in_bytes, totals.out_msgs, totals.out_bytes, totals.latency.total

    async def scenario():
        got = []
        async with fleet.client("count-1", "b1") as client:
            await client.create_topic(topic, broker="b1")
            await client.subscribe(topic, got.append)
            for number in range(50):
                await client.publish(topic, b"x" * 10)
                if number == 25:
                    monkeypatch.setattr(Wire, "ask", ask)
                    await until(lambda: failed)
            await until(lambda: len(got) == 50)
            if not closes:
                await until(lambda: counts() == (50, 500, 50, 500, 50))
        await until(lambda: counts() == (50, 500, 50, 500, 50))
        await always(lambda: counts() == (50, 500, 50, 500, 50), 2.0)

    listening = fleet.do(listen())
    try:
        asyncio.run(scenario())
    finally:
        fleet.do(end(listening))


def test_a_report_that_is_refused_is_not_repeated(fleet, topic, monkeypatch, caplog):
    real, refused = Wire.ask, []

    async def ask(self, request, timeout_s=5.0):
        if isinstance(request, ReportClient) and request.topics and not refused:
            refused.append(request)
            raise BadInput("too large")
        return await real(self, request, timeout_s)

    async def scenario():
        async with fleet.client("count-2", "b1") as client:
            await client.create_topic(topic, broker="b1")
            monkeypatch.setattr(Wire, "ask", ask)
            await client.publish(topic, b"x")
            await until(lambda: refused)
            await until(lambda: not client._routes.reports.waits("b1"))

    asyncio.run(scenario())
    assert "client count-2: the broker 'b1' refuses a report: too large" in caplog.text
