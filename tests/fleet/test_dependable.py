"""Strangers, stock clients, lost hubs, killed processes: what a fleet promises when things go wrong."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path

import nats
import paho.mqtt.client as mqtt
import pytest

from helpers.fleet import RunningFleet
from helpers.waiting import until
from trimtab.errors import AlreadyThere, BadInput, Moving, Unreachable
from trimtab.fleet.broker.store import Store
from trimtab.fleet.protocol import coding, subjects, wire
from trimtab.fleet.protocol.admin_verbs import ListBrokers, ListClients, ListMoves, ListTopics, MoveOrder, StartMoves
from trimtab.fleet.sdk.client import connect
from trimtab.migrate.move import Phase
from trimtab.model.key import Key
from trimtab.observe.report import BrokerReport, TopicReport


def login(fleet) -> dict:
    return json.loads((fleet.home / "client.json").read_text())


async def plain(fleet, broker: str, **more):
    """A stock NATS client with the application's password."""
    known = login(fleet)
    return await nats.connect(
        known["brokers"][broker][0], user=known["user"], password=known["password"], allow_reconnect=False, **more
    )


def test_every_file_with_a_secret_is_for_its_owner_only(fleet):
    secret = [path for path in fleet.home.rglob("*.json") if path.is_file()]

    assert len(secret) >= 5
    for path in secret:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


async def knock(url: str, user: str | None, password: str | None, ca: str | None = None) -> None:
    """Come in, if they let us."""
    connection = await wire.connect([url], user, password, name="stranger", ca=ca, wait_s=0.0)
    await connection.close()


@pytest.mark.parametrize("user", [None, "client", "fleet", "system"])
def test_a_stranger_cannot_connect(fleet, user):
    urls = [fleet.launch.fleet.hub, *(site.urls[0] for site in fleet.launch.sites.values())]

    for url in urls:
        with pytest.raises(BadInput, match="refuses these credentials"):
            asyncio.run(knock(url, user, user and "guess"))


def test_an_application_cannot_administer(fleet, topic):
    """It may publish and subscribe; routes, streams and other parts of the fleet are closed to it."""

    async def scenario():
        refused = []

        async def heard(error):
            refused.append(str(error))

        client = await plain(fleet, "b1", error_cb=heard)
        forbidden = (
            "admin.move",
            f"route.topic.{topic}",
            "telemetry.b1",
            "$JS.b1.API.STREAM.DELETE.x",
            "ask.b1.retire",
            "ask.b1.release",
            "ask.hub.register",
            "ask.hub.sync",
        )
        for subject in forbidden:
            await client.publish(subject, b"{}")
        for subject in ("work.>", "admin.>", ">", "keep.>"):
            await client.subscribe(subject)
        await client.flush()
        await until(lambda: len(refused) == len(forbidden) + 4)
        await client.close()

    asyncio.run(scenario())


def test_a_client_with_a_wrong_password_hears_why(fleet, tmp_path):
    (tmp_path / "client.json").write_text(json.dumps(login(fleet) | {"password": "guess"}))

    async def scenario():
        with pytest.raises(BadInput, match="refuses these credentials"):
            async with connect(tmp_path, name="intruder"):
                pass

    asyncio.run(scenario())


def test_no_fleet_no_client(tmp_path):
    with pytest.raises(BadInput, match=r"there is no .*client.json: start a fleet with trimtab up"):
        connect(tmp_path)


def test_nobody_at_the_address(tmp_path, fleet):
    nowhere = {"brokers": {"b1": ["nats://127.0.0.1:9"]}, "user": "client", "password": "x"}
    (tmp_path / "client.json").write_text(json.dumps(nowhere))

    async def scenario():
        with pytest.raises(Unreachable, match=r"nothing answers at 127.0.0.1:9"):
            async with connect(tmp_path, name="lonely"):
                pass

    asyncio.run(scenario())


def test_a_message_for_fifty_subscribers_at_another_broker_crosses_once(fleet, topic):
    """Counted by the servers: what the first broker sends out, and what the second takes in."""

    async def scenario():
        got = []
        async with fleet.client("cross-p", "b1") as publisher, fleet.client("cross-s", "b2") as other:
            await publisher.create_topic(topic, unit="client")
            await other.subscribe(topic, lambda m: None)
            listeners = [await plain(fleet, "b2") for _ in range(50)]
            for listener in listeners:

                async def heard(message):
                    got.append(message)

                await listener.subscribe(f"t.{topic}", cb=heard)
                await listener.flush()
            await publisher.publish(topic, b"first")
            await until(lambda: len(got) == 50)
            system = await nats.connect(
                login(fleet)["brokers"]["b1"][0],
                user="system",
                password=fleet.launch.fleet.system,
                allow_reconnect=False,
            )

            async def sent_to_b2():
                identity = system._server_info["server_id"]
                reply = await system.request(f"$SYS.REQ.SERVER.{identity}.ROUTEZ", b'{"subscriptions_detail":true}')
                routes = json.loads(reply.data)["data"]["routes"]
                details = [
                    d for r in routes if r["remote_name"] == "b2" for d in r.get("subscriptions_list_detail", ())
                ]
                return sum(d["msgs"] for d in details if d["subject"] == f"t.{topic}")

            before = await sent_to_b2()
            for _ in range(20):
                await publisher.publish(topic, b"x")
            await until(lambda: len(got) == 50 * 21)
            assert await sent_to_b2() - before == 20
            for each in (*listeners, system):
                await each.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("settings", [{}, {"processor": "burn?ms=0.1"}, {"persistent": True}], ids=str)
def test_stock_clients_publish_and_subscribe_at_any_broker_and_are_counted(fleet, topic, settings):
    async def scenario():
        got, ours, by_mqtt = [], [], []
        async with fleet.client("st-p", "b1") as client:
            await client.create_topic(topic, broker="b1", **settings)
            await client.subscribe(topic, lambda m: ours.append((m.text, m.publisher)))
            listener, publisher = await plain(fleet, "b2"), await plain(fleet, "b3")

            async def heard(message):
                got.append(message.data.decode())

            await listener.subscribe(f"t.{topic}", cb=heard)
            await listener.flush()
            known = login(fleet)
            device = mqtt.Client(
                mqtt.CallbackAPIVersion.VERSION2, client_id=f"dev-{topic[:-2]}", protocol=mqtt.MQTTv311
            )
            device.username_pw_set(known["user"], known["password"])
            device.on_message = lambda _, __, message: by_mqtt.append(message.payload.decode())
            listening = []
            device.on_subscribe = lambda *_: listening.append(True)
            device.on_connect = lambda *_: device.subscribe(f"t/{topic.replace('.', '/')}", qos=0)
            address = fleet.launch.sites["b2"].mqtt
            device.connect(address.host, address.port)
            device.loop_start()
            await until(lambda: listening)

            async def everybody_hears():
                await client.publish(topic, "sdk")
                return "sdk" in got and "sdk" in by_mqtt and ours

            await until(everybody_hears)
            await publisher.publish(f"in.{topic}", b"plain")
            await publisher.flush()
            device.publish(f"in/{topic.replace('.', '/')}", "mqtt", qos=1)

            for heard_by in (got, by_mqtt):
                await until(lambda heard_by=heard_by: {"plain", "mqtt"} <= set(heard_by))
            await until(lambda: {("plain", "stock-b3"), ("mqtt", "stock-b2")} <= set(ours))

            async def counted():
                state = await fleet.aask(ListBrokers(reports=True))
                at = state.reports["b2"]
                return at.stock >= 2 and at.topics.get(topic, TopicReport()).subscribers >= 2

            await until(counted)
            device.loop_stop()
            device.disconnect()
            await listener.close()
            await publisher.close()

    asyncio.run(scenario())


def test_an_idle_brokers_traffic_is_the_fleets_own(fleet):
    """Requests, reports and the servers' statistics: the load that a broker has without any topic."""

    async def scenario():
        reports = {}

        async def mostly_own():
            for name, report in (await fleet.aask(ListBrokers(reports=True))).reports.items():
                reports.setdefault(name, {})[report.at] = report
            newest = [list(each.values())[-8:] for each in reports.values()]
            if any(len(each) < 8 for each in newest):
                return False
            shares = [sum(r.own_bytes for r in each) / sum(r.in_bytes + r.out_bytes for r in each) for each in newest]
            return all(0.95 < share < 1.05 for share in shares)

        await until(mostly_own, 60.0)

    asyncio.run(scenario())


def test_reports_tell_results_and_who_published_how_much(fleet, topic):
    """Every byte once: by SDK clients under their names, by stock clients under that of their broker."""
    known, heard = login(fleet), []

    async def scenario():
        async def keep(raw):
            heard.append(coding.decode(raw.data, BrokerReport))

        admin = await nats.connect(fleet.launch.fleet.hub, user="fleet", password=fleet.launch.fleet.fleet)
        await admin.subscribe(subjects.telemetry("b1"), cb=keep)
        stock = await nats.connect(known["brokers"]["b1"][0], user=known["user"], password=known["password"])
        async with fleet.client("told-1", "b1") as one, fleet.client("told-2", "b1") as two:
            await one.create_topic(topic, broker="b1", processor="helpers.processors:double")
            await stock.subscribe(subjects.deliver(topic))
            await stock.flush()
            for client, count in ((one, 3), (two, 5)):
                for _ in range(count):
                    await client.publish(topic, b"x" * 10)
            await stock.publish(subjects.door(topic), b"y" * 7)
            await stock.flush()

            def published():
                total = {}
                for report in heard:
                    for client, topics in (report.published or {}).items():
                        total[client] = total.get(client, 0) + topics.get(topic, 0)
                return total

            def results():
                own = [report.topics.get(topic, TopicReport()) for report in heard]
                return sum(each.result_msgs for each in own), sum(each.result_bytes for each in own)

            wanted = {"told-1": 30, "told-2": 50, "stock-b1": 7}
            await until(lambda: {name: published().get(name, 0) for name in wanted} == wanted)
            await until(lambda: results() == (9, 2 * 87))
            await until(lambda: any((report.stock_subscriptions or {}).get(topic) == 1 for report in heard))
            assert all((report.links is None) == (report.published is None) for report in heard)
            assert all((report.links is None) == (report.stock_subscriptions is None) for report in heard)
            assert not any((report.stock_subscriptions or {}).get(topic, 0) > 1 for report in heard)
        await stock.close()
        await admin.close()

    asyncio.run(scenario())


def test_reports_of_a_topic_do_not_grow_with_its_clients(fleet, topic):
    async def scenario():
        async with fleet.client("rep-p", "b1") as publisher:
            await publisher.create_topic(topic, broker="b1")
            clients = [fleet.client(f"rep-{n}", "b1") for n in range(20)]
            for client in clients:
                await client.__aenter__()
                await client.subscribe(topic, lambda m: None)

            async def seen(subscribers):
                await publisher.publish(topic, b"x" * 50)
                state = await fleet.aask(ListTopics(reports=True))
                entry = state.reports["b1"].topics.get(topic, TopicReport())
                return entry if entry.subscribers == subscribers and entry.latency.total else None

            entry = await until(lambda: seen(20))
            for client in clients:
                await client.__aexit__()
            assert entry.publishers == 1
            assert len(coding.to_json(entry)) < 2_000

    asyncio.run(scenario())


@pytest.fixture
def own_fleet(tmp_path, nats_server):
    """A fleet that a test may break."""
    running = RunningFleet(tmp_path / "home", brokers=("b1", "b2"))
    try:
        running.start()
        yield running
    finally:
        running.stop()


def child(fleet, name):
    return fleet.launch.supervisor.find(name)


def test_a_broker_serves_its_clients_while_the_hub_is_gone_and_rejoins(own_fleet):
    async def scenario():
        got = []
        async with own_fleet.client("p", "b1") as publisher, own_fleet.client("s", "b2") as subscriber:
            await publisher.create_topic("a")
            await subscriber.subscribe("a", got.append)
            hub, keeper = child(own_fleet, "hub"), child(own_fleet, "keeper")
            os.kill(hub.pid, 19)  # SIGSTOP: the hub hangs, which is worse than being gone
            os.kill(keeper.pid, 19)

            for count in range(1, 51):
                await publisher.publish("a", str(count))
            await until(lambda: len(got) == 50)
            async with own_fleet.client("late", "b2") as late:
                more = []
                await late.subscribe("a", more.append)
                await publisher.publish("a", "51")
                await until(lambda: more)

            os.kill(hub.pid, 18)
            os.kill(keeper.pid, 18)
            record = await own_fleet.move(unit="topic", topic="a", to="b2")
            assert record.phase == "done"

            async def registered():
                return "late" in (await own_fleet.aask(ListClients())).entries

            await until(registered)

    asyncio.run(scenario())


def test_acknowledged_messages_survive_killed_servers_and_agents_in_the_middle_of_moves(own_fleet):
    """Whatever is killed, nothing acknowledged is lost, and nothing stays half-moved."""

    async def scenario():
        got, acknowledged, stop = [], [], asyncio.Event()
        async with own_fleet.client("p", "b1") as publisher, own_fleet.client("s", "b2") as subscriber:
            await publisher.create_topic("k", broker="b1", persistent=True)
            await subscriber.subscribe("k", lambda m: got.append(m.text), durable="d")

            async def pump():
                count = 0
                while not stop.is_set():
                    count += 1
                    await publisher.publish("k", str(count))
                    acknowledged.append(str(count))
                    await asyncio.sleep(0.005)  # the pace of the stream

            task = asyncio.create_task(pump())
            await until(lambda: len(got) > 20)
            for target, victim in (
                ("b2", "b2-agent"),
                ("b2", "b1"),
                ("b1", "keeper"),
                ("b2", "b1-store-1"),
                ("b1", "b1-agent"),
            ):
                before = len(acknowledged)
                try:
                    ids = (await own_fleet.aask(StartMoves([MoveOrder(Key("topic", "k", ""), target)]))).moves
                except (AlreadyThere, Moving):  # it is there already, because the move before it was rolled back
                    ids = []
                child(own_fleet, victim).process.kill()

                async def over(ids=ids):
                    try:
                        records = (await own_fleet.aask(ListMoves(ids))).moves if ids else []
                        alive = (await own_fleet.aask(ListBrokers())).alive
                    except Unreachable:
                        return False
                    done = all(r.phase in ("done", "rolled back") for r in records) and len(records) == len(ids)
                    return done and alive == ["b1", "b2"]

                await until(over, 60.0)
                await until(lambda before=before: len(acknowledged) > before + 20, 30.0)
            stop.set()
            await task
            await until(lambda: set(acknowledged) <= set(got), 30.0)
            assert got == sorted(set(got), key=int)
            entry = (await own_fleet.aask(ListTopics())).entries["k"]

            async def stored():
                store = Store(await own_fleet.launch.admin())
                return [b for b in ("b1", "b2") if await store.exists("k", b)]

            async def in_one_place():
                return await asyncio.to_thread(own_fleet.do, stored()) == [entry.broker]

            await until(in_one_place, 30.0)

    asyncio.run(scenario())


def test_a_topic_whose_broker_dies_while_it_hands_over_is_served_by_the_target(own_fleet):
    """The broker never comes back."""

    async def scenario():
        got, key = [], Key("topic", "a", "")
        async with own_fleet.client("p", "b2") as publisher, own_fleet.client("s", "b2") as subscriber:
            await publisher.create_topic("a", broker="b1", processor="burn?ms=2000", limit_ms=60_000)
            await subscriber.subscribe("a", lambda m: got.append(m.text))
            for number in range(20):  # the source cannot finish these before it dies
                await publisher.publish("a", f"before {number}")
            (identity,) = (await own_fleet.aask(StartMoves([MoveOrder(key, "b2")]))).moves

            async def record():
                return (await own_fleet.aask(ListMoves([identity]))).moves[0]

            async def handing_over():
                return (await record()).phase == Phase.HANDING_OVER

            await until(handing_over)
            await asyncio.to_thread(own_fleet.do, own_fleet.launch.end_broker("b1", kill=True))

            async def over():
                return Phase((await record()).phase).over

            await until(over, 30.0)
            ended = await record()
            assert (ended.phase, ended.takeover) == (Phase.DONE, True)
            assert ended.reason == "b1 died while the move was handing over"
            assert (await own_fleet.aask(ListMoves())).under_way == 0

            async def served():
                await publisher.publish("a", "after")
                return "after" in got

            await until(served, 60.0)
            assert len(got) == len({*got}) + got.count("after") - 1  # no result comes twice

    asyncio.run(scenario())


def test_flush_does_not_return_while_a_broker_is_away(own_fleet):
    async def scenario():
        async with own_fleet.client("p", "b2") as publisher:
            await publisher.create_topic("a", broker="b1")
            await publisher.publish("a", "before")
            await publisher.flush()
            await asyncio.to_thread(own_fleet.do, own_fleet.launch.end_broker("b1", kill=True))
            await until(lambda: not publisher._wires.get("b1").nats.is_connected)
            await publisher.publish("a", "meanwhile")

            with pytest.raises(Unreachable, match=r"not every broker has confirmed all messages within 0.5 s"):
                await publisher.flush(0.5)

            await asyncio.to_thread(own_fleet.do, own_fleet.launch.start_broker("b1"))
            await publisher.flush(30.0)
            with pytest.raises(BadInput, match="a timeout is a number of seconds above 0, but this came: 0"):
                await publisher.flush(0)

    asyncio.run(scenario())


def test_tls_is_on_everywhere_when_asked_for(tmp_path, nats_server):
    running = RunningFleet(tmp_path / "home", brokers=("b1", "b2"), tls=True)
    try:
        running.start()

        async def scenario():
            got = []
            async with running.client("p", "b1") as publisher, running.client("s", "b2") as subscriber:
                await publisher.create_topic("a", persistent=True)
                await subscriber.subscribe("a", lambda m: got.append(m.text), durable="d")
                await publisher.publish("a", "over tls")
                await until(lambda: got == ["over tls"])
                assert (await running.move(unit="topic", topic="a", to="b2")).phase == "done"
            known = login(running)
            urls = [running.launch.fleet.hub, *(url for each in known["brokers"].values() for url in each)]
            for url in urls:
                assert url.startswith("tls://")
                await knock(url, "client", known["password"], known["ca"])
                with pytest.raises(Unreachable, match="certificate"):  # one that nobody vouches for
                    await knock(url, "client", known["password"])

        asyncio.run(scenario())
        for config in Path(running.home).rglob("nats.json"):
            text = json.loads(config.read_text())
            assert "tls" in text
            for part in ("cluster", "mqtt"):
                assert part not in text or "tls" in text[part]
    finally:
        running.stop()


def test_a_client_is_where_it_says_it_is_and_finds_a_broker_that_is_back_at_another_address(tmp_path, nats_server):
    """It was told of all brokers when it came, and must not end up at any of them without knowing."""
    running = RunningFleet(tmp_path / "home")
    running.start()

    def reached(client):
        base = client._base.wire
        return base.broker if base.nats.is_connected and wire.server_name(base.nats) == base.broker else ""

    async def scenario():
        got = []
        async with running.client("s", "b1") as client, running.client("p", "b2") as publisher:
            await publisher.create_topic("t", unit="client")
            await client.subscribe("t", got.append)
            old = client._addresses["b1"]

            await asyncio.to_thread(running.do, running.launch.end_broker("b1", kill=True))
            await until(lambda: client.serving in ("b2", "b3"))
            assert reached(client) == client.serving

            async def heard():
                await publisher.publish("t", "meanwhile")
                return got

            await until(heard)

            await asyncio.to_thread(running.do, running.launch.start_broker("b1"))
            await until(lambda: client.serving == "b1", 30.0)
            assert reached(client) == "b1"
            assert client._addresses["b1"] != old

    try:
        asyncio.run(scenario())
    finally:
        running.stop()
