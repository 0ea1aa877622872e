"""The experiments on a live fleet, in small; and the distances they emulate."""

from __future__ import annotations

import asyncio
import time

import pytest

from trimtab.lab.delay import Delays, _Link
from trimtab.lab.experiments.downtime import Downtime
from trimtab.lab.experiments.handover import Handover
from trimtab.lab.ledger import Ledger


@pytest.mark.slow
def test_a_delay_is_kept_in_both_directions_and_changed_while_connected():
    async def scenario():
        ended = asyncio.Event()

        async def echo(reader, writer):
            while data := await reader.read(100):
                writer.write(data)
            writer.close()
            await writer.wait_closed()
            ended.set()

        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        with Delays({"link": (f"127.0.0.1:{port}", 20.0)}) as delays:
            host, _, through = delays.addresses["link"].partition(":")
            reader, writer = await asyncio.open_connection(host, int(through))

            async def there_and_back():
                began = time.monotonic()
                writer.write(b"x")
                await reader.readexactly(1)
                return time.monotonic() - began

            await there_and_back()
            assert await there_and_back() >= 0.04
            delays.set("link", 60.0)
            while await there_and_back() < 0.12:
                pass
            writer.close()
            await writer.wait_closed()
            await ended.wait()
        server.close()
        await server.wait_closed()

    asyncio.run(scenario())


def test_jitter_makes_delays_shorter_and_longer():
    link = _Link(0, "127.0.0.1:1", 20.0, 0.05)

    delays_ms = [1000.0 * link.next_s() for _ in range(200)]

    assert 19.0 <= min(delays_ms) < 19.8
    assert 20.2 < max(delays_ms) <= 21.0


def test_the_ledger_sees_what_is_lost_repeated_and_out_of_order():
    ledger = Ledger()
    stream = ledger.stream("t", "p")
    ledger.expect("t", "s")
    messages = [ledger.message(stream)[1] for _ in range(5)]

    for number in (0, 2, 1, 1, 4):
        ledger.receive("s", messages[number])

    assert ledger.audit() == {"messages": 5, "delivered": 4, "lost": 1, "duplicated": 1, "reordered": 2}
    assert ledger.missing() == 1
    ledger.streams[stream].acknowledged.update((1, 4))
    assert ledger.audit(acknowledged_only=True)["lost"] == 1


def test_a_few_moves_of_the_handover_experiment_lose_nothing(tmp_path, nats_server):
    experiment = Handover()
    job = {"moves": 4, "seed": 0, "kill": False}

    rows = [job | row for row in experiment.run(job)]
    report = experiment.report(rows, tmp_path)

    figures = report.figures
    assert {name: figures[name] for name in ("moves", "lost", "duplicated", "reordered", "rtt_ms")} == {
        "moves": 4, "lost": 0, "duplicated": 0, "reordered": 0, "rtt_ms": 40.0,
    }  # fmt: skip
    assert figures["messages"] > 1000
    assert (tmp_path / "handover.png").stat().st_size > 1000


def test_500_moves_are_parts_that_can_be_resumed():
    jobs = Handover().jobs(1, moves=250)

    assert [job["moves"] for job in jobs] == [100, 100, 50, 100]
    assert [job["kill"] for job in jobs] == [False, False, False, True]


@pytest.mark.parametrize("who", ["trimtab", "unload-first"])
def test_downtime_of_two_topics(who, nats_server):
    job = {"topics": 2, "hub_ms": 10, "executors": 2, "who": who, "seed": 0}

    row = Downtime().run(job)[0]

    assert (row["downtime_ms"] == 0.0) == (who == "trimtab")
    assert row["median_move_ms"] > 0
    assert who != "trimtab" or row["lost"] == 0
