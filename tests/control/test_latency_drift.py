"""Drift in the loop: windows of simulated brokers; quiet for a long time, then slower; the model learns."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from helpers.fleet import RunningFleet
from helpers.waiting import until_blocking
from trimtab.cli.main import trimtab as commands
from trimtab.control.decide import NoPlan
from trimtab.control.drift import DRIFT, LEARN, WINDOW_S, DriftWatch
from trimtab.control.loop import Loop
from trimtab.control.model_file import read_model
from trimtab.control.settings import Settings
from trimtab.control.view import View
from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.protocol import coding
from trimtab.fleet.protocol.admin_verbs import GetStatus
from trimtab.fleet.protocol.snapshots import messages
from trimtab.fleet.sdk.client import connect
from trimtab.model.hardware import PLAIN
from trimtab.model.ids import Ids
from trimtab.model.key import Key, RoutingTable
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot, Usage
from trimtab.predict import store
from trimtab.predict.card import Card
from trimtab.predict.drift import Settings as Alarm
from trimtab.predict.poly4 import Poly4
from trimtab.predict.queueing import Queueing
from trimtab.predict.samples import Samples
from trimtab.predict.sets import Sets
from trimtab.predict.simulator import Hosted, simulate
from trimtab.predict.trim import TrimModel

MODEL = Queueing(replace(PLAIN, name="measured")).as_json()
RATE, MS = np.array([20.0, 12.0, 15.0, 8.0]), np.array([15.0, 20.0, 10.0, 30.0])
AT = ("b0", "b0", "b1", "b1")
SETTLE = Alarm().settle


def window(number, *, ms=MS, hardware=PLAIN, at=AT, brokers=("b0", "b1"), measured=True):
    """The measurement after window ``number``: the p90s are those of simulated brokers."""
    p90, seen = np.full(len(RATE), np.nan), hardware.service_ms(ms)
    for broker in brokers:
        here = np.flatnonzero(np.array(at) == broker)
        if measured:
            hosted = Hosted.of(RATE[here], ms[here])
            run = simulate(hardware, hosted, seed=(number, ord(broker[1])), duration_s=WINDOW_S + 1, warm_up_s=1.0)
            p90[here] = run.p90_ms
    count, rows = len(RATE), np.arange(len(RATE))
    links = Links(
        np.concatenate([rows, rows]), np.concatenate([rows, count + rows]), np.repeat([PUB, SUB], count).astype(np.int8)
    )
    topics = Topics(Ids.numbered("t", count), RATE, np.full(count, 100.0), processing_ms=seen)
    workload = Workload(
        topics, Clients(Ids.numbered("c", 2 * count)), Brokers(Ids(brokers), cores=np.full(len(brokers), 2.0)), links
    )
    keys = {Key("client", "", f"c{row}"): "b0" for row in range(2 * count)}
    keys |= {Key("topic", f"t{topic}", ""): broker for topic, broker in enumerate(at)}
    snapshot = Snapshot(100.0 + WINDOW_S * number, workload, {name: Usage(1.0) for name in brokers}, p90_ms=p90)
    return View.of(snapshot, RoutingTable({f"t{topic}": "topic" for topic in range(count)}, keys), brokers)


@pytest.fixture(scope="module")
def settled():
    """Windows of ten quiet minutes."""
    return [window(number) for number in range(30)]


def watched(views, **settings):
    watch = DriftWatch(MODEL, settings=Alarm(**settings))
    for view in views:
        watch.look(view)
    return watch


def test_ten_quiet_minutes_ring_no_alarm(settled):
    watch = DriftWatch(MODEL)
    for view in settled:
        watch.look(view)
        assert watch.findings == []
    assert not watch.news


def rung(watch, views):
    """The number of windows until the alarm rings, and the sentence."""
    for number, view in enumerate(views, 1):
        watch.look(view)
        if watch.findings:
            return number, str(watch.findings[0])
    return None, ""


def test_machines_that_become_half_as_slow_again_ring(settled):
    slower = replace(PLAIN, service=tuple((nominal, 1.5 * real) for nominal, real in PLAIN.service))

    after, text = rung(watched(settled), (window(30 + n, hardware=slower) for n in range(8)))

    assert after is not None
    assert after <= 6
    assert "b0: topics are slower than usual" in text


def test_a_single_processor_that_becomes_slower_rings_and_is_named(settled):
    """Its broker's other topics hide it in the mean."""
    ms = MS * np.array([1.0, 1.5, 1.0, 1.0])

    after, text = rung(watched(settled), (window(30 + n, ms=ms) for n in range(10)))

    assert after is not None
    assert "latency of topic 't1' at b0 is" in text
    assert "'t1' takes" in text
    assert "of CPU time per message, before 20.2" in text


def test_without_a_fitted_model_there_is_no_alarm(settled):
    watch = DriftWatch({})
    slower = replace(PLAIN, service=tuple((nominal, 3.0 * real) for nominal, real in PLAIN.service))

    for view in [*settled, *(window(30 + n, hardware=slower) for n in range(8))]:
        watch.look(view)

    assert watch.findings == []


def test_other_topics_at_a_broker_settle_the_alarm_anew(settled):
    watch = watched(settled)
    moved = ("b0", "b1", "b1", "b1")

    for number in range(SETTLE - 1):
        watch.look(window(40 + number, at=moved))
        assert watch.findings == []


def test_windows_without_latencies_change_nothing(settled):
    watch = watched(settled)

    for number in range(10):
        watch.look(window(60 + number, measured=False))

    assert watch.findings == []


def test_measurements_within_one_window_count_once(settled):
    watch = watched(settled[:1])
    early = View.of(replace(settled[1].snapshot, at=settled[0].at + 5.0), settled[1].routing, ["b0", "b1"])

    watch.look(early)

    assert len(watch._watches["b0"].first_ms["t0"]) == 1


def test_the_model_learns_when_most_brokers_have_changed(settled):
    """Afterwards it predicts the slower machines, and the alarm is quiet."""
    busy = replace(PLAIN, background=0.7, service=tuple((n, 1.3 * real) for n, real in PLAIN.service))
    watch = watched(settled)
    before = Queueing.from_json(watch.model)
    views = [window(30 + n, hardware=busy) for n in range(LEARN + 8)]
    # Telemetry reports the CPU time, which is not higher: the machines have other work.
    learned = [watch.look(view) for view in views]

    assert any(learned)
    assert watch.updates == 1
    after = Queueing.from_json(watch.model)
    assert after.hardware.name == "measured"
    hosted = np.array([20.0, 12.0]), PLAIN.service_ms(np.array([15.0, 20.0]))
    measured = np.mean([view.snapshot.p90_ms[:2] for view in views], axis=0)
    error = [np.abs(np.log(model.p90_ms(_set(*hosted)) / measured)).mean() for model in (before, after)]
    assert error[1] < 0.6 * error[0]


def _set(rate, ms):
    return Sets(np.array([0, len(rate)]), rate, ms)


def test_a_change_at_one_broker_of_several_is_not_learned(settled):
    busy = replace(PLAIN, service=tuple((n, 1.6 * real) for n, real in PLAIN.service))
    names, at = ("b0", "b1", "b2"), ("b0", "b1", "b2", "b2")
    views = [window(number, at=at, brokers=names) for number in range(SETTLE + 2)]
    watch = watched(views)
    for number in range(LEARN + 8):
        here = window(30 + number, at=at, brokers=names)
        p90 = here.snapshot.p90_ms.copy()
        p90[0] = window(30 + number, at=at, brokers=names, hardware=busy).snapshot.p90_ms[0]
        watch.look(View.of(replace(here.snapshot, p90_ms=p90), here.routing, names))

    assert watch.updates == 0
    assert watch.model == MODEL


# In the loop.


def test_a_drift_is_recorded_once_and_stays_a_finding(settled):
    loop = Loop(Settings(model=MODEL, alpha=10.0, gather=0.0))
    decisions = [loop.step(view.at, view) for view in settled]
    assert not any(decisions)
    assert loop.findings == []
    slower = replace(PLAIN, service=tuple((nominal, 1.5 * real) for nominal, real in PLAIN.service))

    for number in range(6):
        view = window(30 + number, hardware=slower)
        decisions.append(loop.step(view.at, view))

    made = [decision for decision in decisions if decision is not None]
    assert 1 <= len(made) <= 2  # both brokers need not ring in the same window
    assert all(isinstance(decision, NoPlan) for decision in made)
    assert made[0].reasons[0].startswith("drift: b")
    assert "trimtab profile" in made[0].why
    assert {finding.kind for finding in loop.findings} == {DRIFT}
    assert loop.why_not.startswith("moving topics does not mend a drift")


def test_a_successor_goes_on_with_the_model_that_has_learned():
    loop = Loop(Settings(model=MODEL))
    loop.drift.model = Queueing(replace(PLAIN, name="measured", background=0.5)).as_json()
    loop.drift.updates = 1
    memory = coding.decode(coding.encode(loop.memory(0.0)), type(loop.memory(0.0)))

    successor, other = Loop(Settings(model=MODEL)), Loop(Settings(model=Queueing(PLAIN).as_json()))
    for each in (successor, other):
        each.remember(memory)

    assert successor.settings.model["hardware"]["background"] == 0.5
    assert other.settings.model["hardware"]["background"] == 0.0  # a model of other hardware


# The file of the model.


def test_a_model_is_read_from_a_folder_a_file_or_a_profile(tmp_path):
    (tmp_path / "model.json").write_bytes(coding.to_json(MODEL))
    (tmp_path / "profile.json").write_bytes(coding.to_json(MODEL["hardware"]))

    assert read_model(tmp_path) == read_model(tmp_path / "model.json")
    assert Queueing.from_json(read_model(tmp_path)).hardware.name == "measured"
    assert Queueing.from_json(read_model(tmp_path / "profile.json")).hardware.name == "measured"


def test_the_structure_of_a_trained_model_is_used_and_one_without_is_refused(tmp_path):
    structure = Queueing.from_json(MODEL)
    card = Card("trim", "measured", 6, {}, 0, "nothing")
    store.write_model(TrimModel(structure, None, 6), card, tmp_path / "trained")
    samples = np.random.default_rng(0)
    sets = Sets(np.arange(41), samples.uniform(5, 30, 40), samples.choice([10.0, 20.0, 30.0], 40))
    poly = Poly4().fit(Samples(structure.hardware, sets, structure.p90_ms(sets), np.full(40, np.nan)))
    store.write_model(poly, card, tmp_path / "poly")

    assert Queueing.from_json(read_model(tmp_path / "trained")).hardware == structure.hardware
    with pytest.raises(BadInput, match="such as 'trim'; 'poly4' does not"):
        read_model(tmp_path / "poly")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "is no folder of a model: it has no model.json: trimtab profile and trimtab train write one"),
        ("nonsense", "cannot be read"),
        ("[]", "it is no JSON object"),
        ('{"a": 1}', "is neither a latency model nor a hardware profile"),
        ('{"hardware": {}}', "of version None, but must be of version"),
        ('{"version": 0, "name": "x"}', "of version 0, but must be of version"),
    ],
)
def test_a_file_without_a_model_is_refused(tmp_path, text, sentence):
    if text is not None:
        (tmp_path / "model.json").write_text(text)

    with pytest.raises(BadInput, match=sentence):
        read_model(tmp_path)


# A controller process on a real fleet; its measurements are published by hand, a window of 20 s every half second.


class Drifting(RunningFleet):
    def start(self) -> None:
        super().start()
        self.at, self.number, self.slower = time.time() - 20.0, 0, 1.0
        settings = {"model": MODEL, "period_s": 0.2, "alpha": 10.0, "gather": 0.0}

        async def create():
            self.launch.start_controller(settings=settings)
            async with connect(self.home, name="creator") as client:
                for topic, broker in enumerate(AT):
                    await client.create_topic(f"t{topic}", broker=broker)

        self.do(create())

    def led(self):
        try:
            return self.ask(GetStatus()).leader
        except Unreachable:
            return ""

    def publish(self):
        """The next window."""
        self.at, self.number = self.at + WINDOW_S, self.number + 1
        hardware = replace(PLAIN, service=tuple((nominal, self.slower * real) for nominal, real in PLAIN.service))
        snapshot = replace(window(self.number, hardware=hardware).snapshot, at=self.at)

        async def send():
            admin = await self.launch.admin()
            for subject, part in messages(self.number, snapshot.pack()):
                await admin.jetstream().publish(subject, part)

        self.do(send())
        until_blocking(lambda: (self.ask(GetStatus()).measured or 0.0) >= self.at, 20.0)
        return self.ask(GetStatus())


@pytest.fixture
def drifting(tmp_path, nats_server):
    running = Drifting(tmp_path / "home", ("b0", "b1"))
    try:
        running.start()
        until_blocking(running.led, 60.0)
        yield running
    finally:
        running.stop()


def test_status_decisions_and_why_show_a_drift(drifting):
    for _ in range(SETTLE + 2):
        assert drifting.publish().findings == []
    drifting.slower = 1.5

    for _ in range(8):
        status = drifting.publish()
        if status.findings:
            break

    assert "topics are slower than usual" in status.findings[0]

    def shown(*words):
        done = CliRunner().invoke(commands, [*words, "--home", str(drifting.home)], catch_exceptions=False)
        assert done.exit_code == 0
        return " ".join(done.output.split())

    assert "topics are slower than usual" in shown("status")
    made = until_blocking(lambda: json.loads(shown("decisions", "--json")), 10.0)
    assert made[-1]["question"]["reasons"][0].startswith("drift: b")
    number = str(made[-1]["question"]["number"])
    assert "moving topics does not mend a drift" in shown("why", number)
    assert "the same" in shown("why", number, "--replay")
