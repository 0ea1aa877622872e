"""The pipeline on a real fleet and a real Spark: publications in, results out, whoever dies in between."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import threading
from dataclasses import replace

import pytest
from click.testing import CliRunner

from helpers.waiting import until
from trimtab.cli.main import trimtab as commands
from trimtab.errors import BadInput
from trimtab.fleet.site.credentials import Fleet
from trimtab.pipeline import bridge, hub, publish, stored, subscriptions, tables
from trimtab.pipeline.datasets import Arrivals
from trimtab.pipeline.driver import Driver, schedule
from trimtab.pipeline.ledger import Execution
from trimtab.pipeline.manifest import load
from trimtab.pipeline.nats.jetstream import JetStream
from trimtab.pipeline.plan import compile_channels

pytestmark = pytest.mark.timeout(240)
_numbers = itertools.count()

MANIFEST = """
app: {app}
feeds:
  reports:
    topic: {app}.reports
    schema: {{id: string, kind: string, lat: double, lon: double, severity: int}}
  weather:
    spark: {{format: json, path: incoming}}
    schema: {{station: string, wind: double}}
  positions:
    topic: {app}.positions
    schema: {{user: string, lat: double, lon: double}}
datasets:
  users: {{feed: positions, key: user}}
  report_log: {{feed: reports}}
  shelters:
    file: shelters.csv
    schema: {{name: string, kind: string, beds: int}}
channels:
  {app}-kind:
    parameters: {{kind: string}}
    period: continuous
    query: SELECT id, severity FROM reports WHERE kind = :kind
  {app}-storm:
    parameters: {{station: string}}
    period: continuous
    query: SELECT wind FROM weather WHERE station = :station
  {app}-near:
    parameters: {{user: string, km: double}}
    period: continuous
    query: >
      SELECT r.id FROM reports r JOIN users u ON u.user = :user
      WHERE distance_km(r.lat, r.lon, u.lat, u.lon) <= :km
  {app}-around:
    parameters: {{lat: double, lon: double, km: double}}
    period: continuous
    query: SELECT id FROM reports WHERE distance_km(lat, lon, :lat, :lon) <= :km
  {app}-history:
    parameters: {{kind: string}}
    period: continuous
    query: >
      SELECT r.id, count(*) AS so_far, max(s.beds) AS beds FROM reports r
      JOIN report_log l ON l.kind = r.kind LEFT JOIN shelters s ON s.kind = r.kind
      WHERE r.kind = :kind GROUP BY r.id
"""


class Dead(BaseException):
    """The driver has died here."""


class Mortal(Driver):
    """Dies when it is told to, the way a killed process does: without another word."""

    dies_at = ""

    def _perform(self, name, execution, *how, repeated=False):
        self._maybe_die("begun") if repeated else None
        super()._perform(name, execution, *how, repeated=repeated)

    def _results(self, sql, execution):
        self._maybe_die("executing")
        return super()._results(sql, execution)

    def _publish(self, name, execution, answer, *, repeated):
        if self.dies_at == "publishing":  # half of them are out
            super()._publish(name, execution, answer.where("hash(_sub) % 2 = 0"), repeated=repeated)
            raise Dead
        return super()._publish(name, execution, answer, repeated=repeated)

    def _commit(self, name, execution):
        self._maybe_die("committing")
        super()._commit(name, execution)

    def _maybe_die(self, phase):
        if self.dies_at == phase:
            raise Dead


class Application:
    """One application on the fleet, whose pipeline is run round by round."""

    def __init__(self, fleet, spark, folder) -> None:
        self.name = f"app{next(_numbers)}"
        path = folder / "app.yaml"
        (folder / "shelters.csv").write_text("name,kind,beds\nschool,fire,40\ngym,fire,90\n")
        path.write_text(MANIFEST.format(app=self.name))
        self.incoming = folder / "incoming"
        self.incoming.mkdir()
        self.app = load(path)
        self.plans = compile_channels(self.app)
        self.known = Fleet.load(fleet.home / "fleet.json")
        self.done = []
        self._fleet = fleet
        self._spark = spark
        self.folder = folder / "data"
        self._drivers = []
        hub.prepare(self.known, self.app)
        self.driver = self.start()

    def start(self) -> Mortal:
        driver = Mortal(
            self._spark, hub.server_of(self.known), self.app, self.plans, self.folder, on_execution=self.done.append
        )
        self._drivers.append(driver)
        driver.load()
        driver.start()
        self.driver = driver
        return driver

    def stop(self) -> None:
        for driver in self._drivers:
            driver.__exit__()

    async def rounds(self, condition):
        async def one():
            await asyncio.to_thread(self.driver.round)
            return condition()

        await until(one, 60.0)

    def client(self, name, home="b1"):
        return self._fleet.client(f"{self.name}-{name}", home)

    async def report(self, client, *reports):
        for report in reports:
            await client.publish(f"{self.name}.reports", json.dumps(report) if isinstance(report, dict) else report)
        await client.flush()

    async def follow_ann(self, client, got):
        """What is reported near ann goes to ``got``, wherever she is."""
        for topic in ("reports", "positions"):
            await client.create_topic(f"{self.name}.{topic}")
        await client.subscribe_channel(f"{self.name}-near", got.append, user="ann", km=10.0)

    async def place_ann(self, client, lat):
        position = {"user": "ann", "lat": lat, "lon": 15.0}
        await client.publish(f"{self.name}.positions", json.dumps(position))
        await client.flush()

    async def arrived(self, count):
        """Until the hub has so many publications."""

        def last():
            with JetStream(hub.server_of(self.known)) as jetstream:
                return jetstream.info(f"feed={self.name}=reports").last

        async def there():
            return await asyncio.to_thread(last) >= count

        await until(there)

    def results(self):
        """Everything stored for this application: (channel, execution, subscription) of each message."""
        with JetStream(hub.server_of(self.known)) as jetstream:
            state = jetstream.info("results")
            rows = [r for rows in jetstream.read("results", state.first, state.last) for r in rows.message_id]
        return [each.decode() for each in rows if each and each.decode().startswith(f"{self.name}-")]


@pytest.fixture
def application(fleet, spark, tmp_path):
    app = Application(fleet, spark, tmp_path)
    yield app
    app.stop()


def a_report(number, kind="fire", **more):
    return {"id": f"r{number}", "kind": kind, "lat": 47.0, "lon": 15.0, "severity": number, **more}


def test_publications_become_results_of_those_who_asked(application):
    app = application

    async def scenario():
        got = {"fire": [], "flood": [], "near": [], "history": []}
        async with app.client("p") as publisher, app.client("s", "b2") as subscriber:
            for topic in ("reports", "positions"):
                await publisher.create_topic(f"{app.name}.{topic}")
            for kind in ("fire", "flood"):
                await subscriber.subscribe_channel(f"{app.name}-kind", got[kind].append, kind=kind)
            await subscriber.subscribe_channel(f"{app.name}-near", got["near"].append, user="ann", km=5)
            await subscriber.subscribe_channel(f"{app.name}-history", got["history"].append, kind="fire")
            position = {"user": "ann", "lat": 47.0, "lon": 15.0}
            await publisher.publish(f"{app.name}.positions", json.dumps(position | {"lat": 10.0}))
            await publisher.publish(f"{app.name}.positions", json.dumps(position))
            await app.report(publisher, a_report(1), a_report(2, lat=48.0), a_report(3, kind="quake"))
            await app.arrived(3)
            await app.rounds(lambda: got["fire"] and got["near"] and got["history"])

            await app.report(publisher, a_report(4, kind="flood"), a_report(5))
            await app.arrived(5)
            await app.rounds(lambda: got["flood"] and len(got["near"]) > 1 and len(got["history"]) > 1)

        def rows(channel):
            return [tuple(row.values()) for result in got[channel] for row in result.rows]

        assert sorted(rows("fire")) == [("r1", 1), ("r2", 2), ("r5", 5)]
        assert rows("flood") == [("r4", 4)]
        assert sorted(rows("near")) == [("r1",), ("r3",), ("r4",), ("r5",)]
        # Joined with two shelters each; the log has what came before, and the publication itself.
        assert sorted(rows("history")) == [("r1", 4, 90), ("r2", 4, 90), ("r5", 6, 90)]
        assert got["fire"][0].channel == f"{app.name}-kind"

    asyncio.run(scenario())


def test_a_bad_message_is_kept_with_the_reason_and_stops_nothing(application, spark):
    app = application

    async def scenario():
        got = []
        async with app.client("p") as publisher:
            await publisher.create_topic(f"{app.name}.reports")
            await publisher.subscribe_channel(f"{app.name}-kind", got.append, kind="fire")
            bad = ["not json", "[1, 2]", "", b"\xff\xfe", {"id": "x", "kind": "fire", "lat": "north"}, "null"]
            await app.report(publisher, *bad, a_report(1), {"id": "r2", "kind": "fire", "unknown": 1})
            await app.arrived(8)
            await app.rounds(lambda: got)
        assert sorted(row["id"] for result in got for row in result.rows) == ["r1", "r2"]

    asyncio.run(scenario())
    app.driver.store()
    app.driver.store()
    assert app.driver.arrivals["reports"].rejected == 6
    kept = spark.read.parquet(str(app.folder / "rejects" / "reports" / "*")).collect()
    reasons = {row.data: row.reason for row in kept}
    assert len(kept) == 6
    assert reasons["not json"] == "it is not a JSON object"
    assert "'lat' must be double, but is north" in reasons.values()


def test_identical_subscriptions_are_computed_and_sent_once(application):
    app = application

    async def scenario():
        got = {name: [] for name in ("one", "two", "three")}
        async with app.client("one") as one, app.client("two", "b2") as two, app.client("three", "b2") as three:
            await one.create_topic(f"{app.name}.reports")
            for name, client in (("one", one), ("two", two), ("three", three)):
                await client.subscribe_channel(f"{app.name}-kind", got[name].append, kind="fire")
            await app.report(one, a_report(1))
            await app.arrived(1)
            await app.rounds(lambda: all(got.values()))
        assert len({result.seq for results in got.values() for result in results}) == 1
        assert len(app.results()) == 1
        assert [done.subscriptions for done in app.done] == [1]

    asyncio.run(scenario())


def test_a_subscriber_that_was_away_gets_what_it_missed_and_nothing_twice(application):
    app = application

    async def scenario():
        channel = f"{app.name}-kind"
        first, second = [], []
        async with app.client("p") as publisher:
            await publisher.create_topic(f"{app.name}.reports")
            async with app.client("s", "b2") as subscriber:
                await subscriber.subscribe_channel(channel, first.append, kind="fire")
                await app.report(publisher, a_report(1))
                await app.arrived(1)
                await app.rounds(lambda: first)
            for number in (2, 3):
                await app.report(publisher, a_report(number))
                await app.arrived(number)
                count = len(app.done)
                await app.rounds(lambda before=count: len(app.done) > before)
            async with app.client("s", "b3") as subscriber:
                subscription = await subscriber.subscribe_channel(channel, second.append, kind="fire")
                await until(lambda: len(second) == 2)
                await subscriber.unsubscribe_channel(subscription)
            assert [row["id"] for result in first + second for row in result.rows] == ["r1", "r2", "r3"]

            await app.report(publisher, a_report(4))
            await app.arrived(4)
            known, stream = app.driver.ledger.channels, f"feed={app.name}=reports"
            await app.rounds(lambda: known[channel].upto["reports"][stream] >= 4)
            assert len(app.results()) == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("by_index", [True, False], ids=["by-index", "plain"])
def test_subscriptions_come_and_go_while_it_runs(application, monkeypatch, by_index):
    monkeypatch.setattr("trimtab.pipeline.driver.pays", lambda *_: by_index)
    app = application

    async def scenario():
        channel = f"{app.name}-around"
        got = {name: [] for name in ("here", "there", "later")}
        places = {"here": (47.0, 15.0), "there": (48.0, 15.0), "later": (47.01, 15.0)}

        def wanted(name):
            lat, lon = places[name]
            return (channel, got[name].append, {"lat": lat, "lon": lon, "km": 20.0 if name == "later" else 5.0})

        async with app.client("p") as client:
            await client.create_topic(f"{app.name}.reports")
            first = await client.subscribe_channels([wanted("here"), wanted("there")])
            await app.report(client, a_report(1), a_report(2, lat=48.0))
            await app.arrived(2)
            await app.rounds(lambda: got["here"] and got["there"])
            await client.subscribe_channels([wanted("later")])
            await client.unsubscribe_channel(first[0])
            await app.report(client, a_report(3), a_report(4, lat=48.01))
            await app.arrived(4)
            await app.rounds(lambda: got["later"] and len(got["there"]) > 1)
        ids = {name: [row["id"] for result in results for row in result.rows] for name, results in got.items()}
        assert ids == {"here": ["r1"], "there": ["r2", "r4"], "later": ["r3"]}
        assert {done.indexed for done in app.done} == {by_index}
        assert [done.subscriptions for done in app.done] == [2, 2]

    asyncio.run(scenario())


def test_a_keyed_row_is_known_however_long_nobody_asks_for_it(application):
    """What comes by the feed of a dataset leaves the memory when it is on disk, whether or not a channel has run."""
    app = application

    async def scenario():
        got = []
        async with app.client("late") as client:
            await app.follow_ann(client, got)
            await app.report(client, a_report(1, lat=10.0))
            await app.rounds(lambda: app.done)  # the dataset is in use now
            await app.place_ann(client, 47.0)
            await app.rounds(lambda: any(app.driver.arrivals["positions"].upto.values()))
            app.driver.store()
            app.driver.round()
            await app.report(client, a_report(2))
            await app.rounds(lambda: got)
        assert [row["id"] for result in got for row in result.rows] == ["r2"]

    asyncio.run(scenario())


def test_what_is_being_written_is_not_there_twice(application):
    """Files that nobody has taken note of: a channel goes on while they are written, or a run was cut off then."""
    app = application

    async def scenario():
        got = []
        async with app.client("c") as client:
            await client.create_topic(f"{app.name}.reports")
            await client.subscribe_channel(f"{app.name}-history", got.append, kind="flood")
            await app.report(client, a_report(1, "flood"))
            await app.rounds(lambda: got)
            app.driver.arrivals["reports"].unwritten().write()

            await app.report(client, a_report(2, "flood"))
            await app.rounds(lambda: len(got) > 1)
            assert [row["so_far"] for row in got[-1].rows] == [2]
            app.driver.store()
            await app.report(client, a_report(3, "flood"))
            await app.rounds(lambda: len(got) > 2)
            assert [row["so_far"] for row in got[-1].rows] == [3]

    asyncio.run(scenario())


def test_a_keyed_row_outlives_its_feed(application):
    app = application

    async def scenario():
        got = []
        async with app.client("keyed") as client:
            await app.follow_ann(client, got)
            await app.place_ann(client, 47.0)
            await app.report(client, a_report(1))
            await app.rounds(lambda: got)
            app.driver.store()
            app.driver.store_snapshots()
            for old in (app.folder / "feeds" / "positions").glob("after-*"):  # it has been kept long enough
                shutil.rmtree(old)

            app.start()
            await app.report(client, a_report(2))
            await app.rounds(lambda: len(got) > 1)
        assert [row["id"] for result in got for row in result.rows] == ["r1", "r2"]

    asyncio.run(scenario())


def test_what_is_stored_can_be_asked_for(application):
    app = application

    def ask(sql):
        session = app.driver.spark
        stored.prepare(session, hub.server_of(app.known), app.app, app.folder)
        return stored.ask(session, sql, 10)

    async def scenario():
        got = []
        async with app.client("asks") as client:
            await client.create_topic(f"{app.name}.reports")
            await client.subscribe_channel(f"{app.name}-kind", got.append, kind="fire")
            await app.report(client, a_report(1), a_report(2, severity=4))
            await client.publish(f"{app.name}.reports", "no JSON")
            await app.rounds(lambda: sum(len(result.rows) for result in got) == 2)
            app.driver.store()
            await app.report(client, a_report(3))  # at the hub only
            await app.arrived(4)
        columns, rows = ask("SELECT id, severity FROM reports ORDER BY id")
        assert (columns, [row[0] for row in rows]) == (["id", "severity"], ["r1", "r2", "r3"])
        assert ask("SELECT count(*) AS n FROM report_log")[1] == [[3]]
        assert ask("SELECT feed, data FROM rejects")[1] == [["reports", "no JSON"]]
        found = ask("SELECT get_json_object(row, '$.id') AS id, stored > at AS later FROM results ORDER BY id")[1]
        assert found == [["r1", True], ["r2", True]]
        with pytest.raises(BadInput, match="nothing"):
            ask("SELECT nothing FROM reports")

    asyncio.run(scenario())


def test_a_client_may_subscribe_to_the_same_twice(application):
    app = application

    async def scenario():
        one, other = [], []
        async with app.client("twice") as client:
            await client.create_topic(f"{app.name}.reports")
            wanted = [(f"{app.name}-kind", each.append, {"kind": "fire"}) for each in (one, other)]
            first, _ = await client.subscribe_channels(wanted)
            await app.report(client, a_report(1))
            await app.rounds(lambda: one and other)
            await client.unsubscribe_channel(first)
            await app.report(client, a_report(2))
            await app.rounds(lambda: len(other) > 1)
        assert [result.seq for result in one] == [result.seq for result in other][:1]
        assert [[row["id"] for row in result.rows] for result in other] == [["r1"], ["r2"]]

    asyncio.run(scenario())


def test_a_feed_can_be_any_streaming_source_of_spark(application):
    app = application

    async def scenario():
        got = []
        async with app.client("s") as subscriber:
            await subscriber.subscribe_channel(f"{app.name}-storm", got.append, station="graz")
            for number, wind in enumerate((12.5, 80.0)):
                rows = [{"station": "graz", "wind": wind}, {"station": "linz", "wind": 1.0}]
                part = app.incoming / f".{number}"
                part.write_text("\n".join(map(json.dumps, rows)))
                part.rename(app.incoming / f"{number}.json")
                await app.rounds(lambda so_far=number: len(got) > so_far)
        assert [result.rows for result in got] == [[{"wind": 12.5}], [{"wind": 80.0}]]

    asyncio.run(scenario())


@pytest.mark.parametrize("phase", ["executing", "publishing", "committing"])
def test_a_driver_that_dies_loses_nothing_and_repeats_nothing(application, phase):
    """What was cut off is repeated with the subscriptions of then."""
    app = application

    async def scenario():
        channel = f"{app.name}-kind"
        kinds = [f"kind-{number}" for number in range(8)]
        got = {kind: [] for kind in kinds}
        async with app.client("p") as publisher, app.client("s", "b2") as subscriber:
            await publisher.create_topic(f"{app.name}.reports")
            await subscriber.subscribe_channels([(channel, got[kind].append, {"kind": kind}) for kind in kinds])
            await app.report(publisher, *(a_report(n, kind) for n, kind in enumerate(kinds)))
            await app.arrived(8)
            app.driver.dies_at = phase
            with pytest.raises(Dead):
                await app.rounds(lambda: False)
            late = []
            await subscriber.subscribe_channel(channel, late.append, kind="late")
            await app.report(publisher, a_report(100, "kind-0"), a_report(101, "late"))
            await app.arrived(10)

            await asyncio.to_thread(app.start)
            await app.rounds(lambda: late and all(got.values()) and len(got["kind-0"]) > 1)

        assert [[row["id"] for result in got[kind] for row in result.rows] for kind in kinds] == [
            ["r0", "r100"], *([f"r{number}"] for number in range(1, 8))
        ]  # fmt: skip
        assert [row["id"] for result in late for row in result.rows] == ["r101"]
        ids = app.results()
        assert len(ids) == len(set(ids)) == 10

    asyncio.run(scenario())


def test_a_driver_that_has_not_read_yet_what_was_answered_does_not_answer_it_again(application, monkeypatch):
    """It reads from where the disk ends, which may be long before, and its first rounds find nothing read."""
    app, read = application, Arrivals.segment
    may_read = threading.Event()

    def held(self, *what):
        may_read.wait(60.0)
        return read(self, *what)

    async def scenario():
        got = []
        async with app.client("p") as publisher:
            await publisher.create_topic(f"{app.name}.reports")
            await publisher.subscribe_channel(f"{app.name}-kind", got.append, kind="fire")
            await app.report(publisher, a_report(1), a_report(2))
            await app.arrived(2)
            await app.rounds(lambda: got)
            monkeypatch.setattr(Arrivals, "segment", held)
            await asyncio.to_thread(app.start)
            await app.report(publisher, a_report(3))
            await app.arrived(3)
            for _ in range(3):
                await asyncio.to_thread(app.driver.round)
            may_read.set()
            await app.rounds(lambda: len(got) > 1)
        assert [row["id"] for result in got for row in result.rows] == ["r1", "r2", "r3"]

    asyncio.run(scenario())


def test_an_execution_fits_what_the_channel_reads_now():
    """Feeds come and go with the manifest, and a stream that was lost at the hub begins anew."""
    known = Execution(7, {"a": {"s": 3}, "gone": {"t": 1}}, {"a": {"s": 9}, "gone": {"t": 2}}, {"d": {"u": 8}, "x": {}})

    fitting = known.fitting({"a": {"s": 20}, "new": {"v": 5}}, {"d": {"u": 4, "more": 6}, "e": {"w": 7}})

    assert fitting == replace(
        known, after={"a": {"s": 3}, "new": {"v": 5}}, upto={"a": {"s": 9}, "new": {"v": 5}},
        datasets={"d": {"u": 4, "more": 6}, "e": {"w": 7}},
    )  # fmt: skip
    assert known.fitting({"a": {"s": 6}}, {}).upto == {"a": {"s": 6}}


async def history_over_a_restart(app, between=lambda: None):
    """Results of a channel over two reports that are stored and, from the next driver, over a third one, too."""
    got = []
    async with app.client("p") as publisher:
        await publisher.create_topic(f"{app.name}.reports")
        await publisher.subscribe_channel(f"{app.name}-history", got.append, kind="fire")
        await app.report(publisher, a_report(1), a_report(2))
        await app.arrived(2)
        await app.rounds(lambda: got)
        await asyncio.to_thread(app.driver.store)
        between()
        await asyncio.to_thread(app.start)
        await app.report(publisher, a_report(3))
        await app.arrived(3)
        await app.rounds(lambda: len(got) > 1)
    return [result.rows for result in got]


def test_stored_publications_outlive_the_driver(application, spark):
    got = asyncio.run(history_over_a_restart(application))

    assert got[-1] == [{"id": "r3", "so_far": 6, "beds": 90}]
    stored = spark.read.parquet(str(application.folder / "feeds" / "reports" / "after-*"))
    assert sorted(row.id for row in stored.collect()) == ["r1", "r2"]


@pytest.mark.parametrize(
    ("channel", "params", "sentence"),
    [
        ("nope", {}, "there is no channel 'nope'"),
        ("kind", {"knd": "fire"}, "did you mean 'kind'"),
        ("kind", {}, "needs the parameter 'kind'"),
        ("kind", {"kind": 7}, "parameter 'kind' of channel"),
        ("near", {"user": "ann", "km": float("nan")}, "parameter 'km' of channel"),
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(application, channel, params, sentence):
    async def scenario():
        async with application.client("s") as subscriber:
            name = channel if channel == "nope" else f"{application.name}-{channel}"
            with pytest.raises(BadInput, match=sentence):
                await subscriber.subscribe_channel(name, print, **params)

    asyncio.run(scenario())
    assert application.driver.subscriptions.version == 0 or not application.done


def test_what_is_not_on_this_disk_is_taken_from_the_hub(application):
    """A driver on another machine: history is what the hub still has, and nothing is answered again."""
    got = asyncio.run(history_over_a_restart(application, lambda: shutil.rmtree(application.folder)))

    assert got[1:] == [[{"id": "r3", "so_far": 6, "beds": 90}]]


def test_files_of_other_topics_are_not_taken_for_its_own(tmp_path):
    """They are named by positions, and the same ones mean something else in other streams."""
    folder = tmp_path / "feed"
    tables.make_about(folder, ["a", "b"])
    (folder / "after-5-600").mkdir()

    tables.make_about(folder, ["a", "b"])
    assert tables.is_about(folder, ["a", "b"])
    assert (folder / "after-5-600").exists()

    assert not tables.is_about(folder, ["b", "a"])
    tables.make_about(folder, ["a"])
    assert [path.name for path in folder.iterdir()] == [tables.ABOUT]


def test_what_is_on_disk_is_not_forgotten_by_a_driver_that_reads_it_again(application):
    arrivals = application.driver.arrivals["reports"]
    arrivals.stored = {stream: at + 5 for stream, at in arrivals.upto.items()}

    assert arrivals.unwritten() is None


def test_a_subscription_whose_first_changes_are_not_kept_is_there():
    """The hub keeps a few of them; the first may be that it went."""
    table = subscriptions.Table(plan=None)
    for seq, on in enumerate((False, True, False, True)):
        table.apply("s", on, {"kind": "fire"}, seq)

    assert table.now == 1
    assert table.added == {"s": {"kind": "fire"}}
    table.apply("s", False, {}, 9)
    assert table.now == 0


def test_of_a_result_in_parts_those_that_are_missing_are_sent_again(nats, monkeypatch):
    monkeypatch.setattr(publish, "MOST_BYTES", 10)
    nats.add_stream("parts", subjects=["res.parts.>"])
    rows = [("s", ["1111111", "2222222", "3333333"])]
    execution = Execution(1, {}, {}, at="then")
    (first,) = publish.publisher(nats.server, "parts", execution)([("s", rows[0][1][:2])])
    with JetStream(nats.server) as jetstream:
        known = publish.stored_identities(jetstream, "parts", 0, "parts", 1)
        (second,) = publish.publisher(nats.server, "parts", execution, known)(rows)
        ids = [each for some in jetstream.read("parts", 1, 9) for each in some.message_id]

    assert (first.messages, second.messages, second.repeated) == (2, 1, 0)
    assert ids == [b"parts/1/s/0", b"parts/1/s/1", b"parts/1/s/2"]


def test_a_result_fits_its_messages_with_all_that_is_between_its_rows():
    """Short rows: half of what is sent is what stands between them."""
    rows = ["{}"] * 700_000

    parts = publish.Parts.of(rows)
    messages = [parts.message(number, Execution(7, {}, {}, at="then", results=41)) for number in range(len(parts.rows))]

    assert len(messages) == 4
    assert max(map(len, messages)) < 1_000_000
    read = [json.loads(message) for message in messages]
    assert [(each["part"], each["parts"], each["after"]) for each in read] == [(at, 4, 41) for at in range(4)]
    assert sum(len(each["rows"]) for each in read) == len(rows)


def test_rows_that_are_too_large_are_counted_and_named():
    large, small = json.dumps("x" * publish.MOST_BYTES), '{"id": 1}'
    execution = Execution(3, {}, {}, at="then")

    mixed = json.loads(publish.Parts.of([large, small, large]).message(0, execution))
    nothing = json.loads(publish.Parts.of([large]).message(0, execution))

    reason = "a row of 900,002 bytes is over the limit of 900,000"
    assert mixed == {
        "execution": 3, "at": "then", "part": 0, "left_out": 2, "reason": reason, "rows": [{"id": 1}]
    }  # fmt: skip
    assert (nothing["rows"], nothing["left_out"], nothing["reason"]) == ([], 1, reason)
    plain = json.loads(publish.Parts.of([small]).message(0, execution))
    assert plain == {"execution": 3, "at": "then", "part": 0, "rows": [{"id": 1}]}


def test_a_large_result_comes_as_one_and_a_row_that_is_too_large_is_reported(application, fleet):
    """To its subscriber, and to whoever looks at the channels; once, also if the execution is repeated."""
    app = application

    def channels(*more):
        words = ["channels", "--home", str(fleet.home), *more]
        return CliRunner().invoke(commands, words, catch_exceptions=False, standalone_mode=False).output

    async def scenario():
        got = []
        async with app.client("p") as client:
            await client.create_topic(f"{app.name}.reports")
            await client.subscribe_channel(f"{app.name}-kind", got.append, kind="fire")
            large = [a_report(number, id=str(number) * 400_000) for number in range(1, 6)]
            await app.report(client, *large, a_report(6, id="x" * 950_000), a_report(7))
            await app.arrived(7)
            app.driver.dies_at = "committing"
            with pytest.raises(Dead):
                await app.rounds(lambda: False)
            await asyncio.to_thread(app.start)
            await app.rounds(lambda: got)
            await app.report(client, a_report(8))
            await app.arrived(8)
            await app.rounds(lambda: len(got) > 1)
        first, second = got
        assert sorted(row["severity"] for row in first.rows) == [1, 2, 3, 4, 5, 7]
        assert (first.part, first.parts, first.left_out) == (1, 1, 1)
        assert "bytes is over the limit of 900,000" in first.reason
        assert [row["id"] for row in second.rows] == ["r8"]
        assert (second.left_out, second.reason) == (0, "")
        assert len(app.results()) == 4  # messages: three of the first result, one of the second
        assert [done.left_out for done in app.done] == [1, 0]

    asyncio.run(scenario())
    [listed] = [each for each in json.loads(channels("--json")) if each["channel"] == f"{app.name}-kind"]
    assert listed["left_out"] == 1
    assert "bytes is over the limit" in listed["reason"]
    shown = channels()
    assert f"{app.name}-kind: a row of 950,0" in shown
    assert "rows left out" in shown


def test_a_batch_that_is_repeated_is_looked_up(nats, tmp_path):
    """Spark repeats a batch that was cut off, when the server has forgotten which messages it has seen."""
    nats.add_stream("bridged")
    note = tmp_path / "batch"
    assert bridge._sent(nats.server, "bridged", note, 7, b"e/7/") == set()
    with JetStream(nats.server) as jetstream:
        jetstream.publish([("bridged.x", b"row", identity) for identity in ("e/6/0/9", "e/7/0/0", "e/7/1/0")])

    assert bridge._sent(nats.server, "bridged", note, 7, b"e/7/") == {b"e/7/0/0", b"e/7/1/0"}
    assert bridge._sent(nats.server, "bridged", note, 8, b"e/8/") == set()


def test_channels_with_a_period_take_turns():
    due = schedule({"a": 10.0, "now": 0.0, "b": 20.0, "c": 30.0, "d": 10.0})
    times = {}
    for name, each in due.items():
        each.start(1000.0)
        times[name] = each.next_at
    assert times.pop("now") == 0.0
    assert all(1000.0 < at <= 1000.0 + due[name].period_s for name, at in times.items())
    assert {name: at % 10.0 for name, at in times.items()} == {"a": 0.0, "b": 2.5, "c": 5.0, "d": 7.5}


def test_a_keyed_dataset_that_went_back_for_an_execution_comes_forward_again(application):
    """The execution is repeated as of then; what came since is on disk, and no longer in memory."""
    app = application

    async def scenario():
        got = []
        async with app.client("c") as client:
            await app.follow_ann(client, got)
            await app.place_ann(client, 47.0)
            await app.rounds(lambda: any(app.driver.arrivals["positions"].upto.values()))
            app.driver.dies_at = "committing"
            await app.report(client, a_report(1, lat=47.0))
            with pytest.raises(Dead):
                await app.rounds(lambda: False)
            await app.place_ann(client, 10.0)
            positions = app.driver.arrivals["positions"]

            async def read():
                await asyncio.to_thread(app.driver._read)
                return sum(positions.upto.values()) > 1

            await until(read)
            app.driver.store()
            app.start()
            await app.report(client, a_report(2, lat=10.0))
            await app.rounds(lambda: sum(len(result.rows) for result in got) > 1)
        assert sorted(row["id"] for result in got for row in result.rows) == ["r1", "r2"]

    asyncio.run(scenario())


def test_what_a_dataset_was_before_does_not_stay_in_memory(application, spark):
    app = application

    async def scenario():
        got, in_memory = [], []
        async with app.client("c") as client:
            await app.follow_ann(client, got)
            for number in range(1, 7):
                await app.place_ann(client, 47.0)
                read = sum(app.driver.arrivals["positions"].upto.values())
                await app.rounds(lambda read=read: sum(app.driver.arrivals["positions"].upto.values()) > read)
                await app.report(client, a_report(number))
                await app.rounds(lambda number=number: len(got) == number)
                app.driver.store()
                app.driver.round()  # what is on disk and done is forgotten
                in_memory.append(spark.sparkContext._jsc.getPersistentRDDs().size())
        assert in_memory[-1] <= in_memory[1]  # Spark may meanwhile have dropped what other tests left behind

    asyncio.run(scenario())
