"""Live runs with bounds: the audit, excursions, and a short flight of two swarms."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

from trimtab.errors import BadInput
from trimtab.lab.experiments.joint_live import JointLive
from trimtab.lab.experiments.mmog_live import MmogLive
from trimtab.lab.experiments.uav_live import UavLive
from trimtab.lab.live_rows import thinned
from trimtab.lab.tape import Tape, excursions
from trimtab.lab.worlds.uav import zones_over_time


def heard(reception, payload):
    reception.receive(SimpleNamespace(data=payload))


def test_the_tape_sees_what_is_lost_doubled_and_out_of_order():
    tape = Tape(100)
    reception = tape.listen("t", "s")
    messages = [tape.message("t", "p") for _ in range(5)]

    for number in (0, 2, 1, 1, 4):
        heard(reception, messages[number])

    found = tape.deliveries()
    assert {len(message) for message in messages} == {100}
    assert (found.messages, found.lost, found.doubled, found.reordered) == (5, 1, 1, 2)
    assert len(found.ms) == 5
    assert np.isinf(found.ms).sum() == 1


def test_a_subscription_that_has_just_begun_or_ended_owes_nothing():
    tape = Tape(10)
    stream_at = [10.0, 11.5, 13.0, 14.5, 16.0]
    for _ in stream_at:
        tape.message("t", "p")
    tape.streams[0].sent_at[:] = stream_at
    reception = tape.listen("t", "s", 11.0)
    reception.until = 15.0

    assert tape.deliveries().lost == 1  # that of 13.0
    assert tape.deliveries(began=13.5).lost == 0
    assert tape.deliveries(without={"t"}).messages == 0


def test_deliveries_are_those_of_the_asked_topics():
    tape = Tape(10)
    receptions = {topic: tape.listen(topic, "s") for topic in ("a", "b")}
    for topic in ("a", "b", "a"):
        heard(receptions[topic], tape.message(topic, "p"))

    found = tape.deliveries()

    assert [len(found.of([topic])[1]) for topic in ("a", "b")] == [2, 1]
    assert len(found.of(["a", "b"])[0]) == 3


def test_an_excursion_lasts_from_the_change_to_the_last_message_outside():
    at = np.arange(0.0, 20.0, 0.5)
    ms = np.full(len(at), 10.0)
    ms[(at >= 5.0) & (at < 7.0)] = 100.0  # after the change at 5
    ms[at == 12.0] = 100.0  # long after it

    found, strays = excursions([5.0, 15.0], 20.0, at, ms, 40.0)

    assert [one.changed for one in found] == [5.0, 15.0]
    assert found[0].lasted_s == pytest.approx(1.6)
    assert found[1].lasted_s == 0.0
    assert strays == 1


def test_a_message_under_way_during_the_change_belongs_to_it():
    found, strays = excursions([5.0], 20.0, np.array([4.99]), np.array([60.0]), 40.0)

    assert (found[0].lasted_s, strays) == (pytest.approx(0.05), 0)


def test_a_lost_message_is_outside_the_bound():
    found, strays = excursions([5.0], 20.0, np.array([5.5, 9.0]), np.array([math.inf, math.inf]), 40.0)

    assert (found[0].lasted_s, strays) == (0.5, 1)


def test_thinning_keeps_the_slowest_deliveries():
    at, ms = np.arange(20_000.0), np.ones(20_000)
    ms[::1000] = 50.0
    ms[7] = math.inf

    kept_at, kept = thinned(at, ms)

    assert len(kept) <= 4_000
    assert (kept == 50.0).sum() == 20
    assert (np.diff(kept_at) > 0).all()


def test_swarms_fly_from_quarter_to_quarter_and_the_same_way_again():
    beginning, changes = zones_over_time(8, 600.0, 3, side_km=6.0)
    again = zones_over_time(8, 600.0, 3, side_km=6.0)

    assert (beginning, changes) == again
    assert len(changes) > 40
    zones = dict(enumerate(beginning))
    for change in changes:
        assert zones[change.swarm] != change.zone
        zones[change.swarm] = change.zone
    assert [change.at_s for change in changes] == sorted(change.at_s for change in changes)


def test_an_unknown_policy_is_refused():
    with pytest.raises(BadInput, match="hash, stay, oracle, trimtab"):
        UavLive().jobs(1, policy=["centroid"])
    with pytest.raises(BadInput, match="network, processing, trimtab"):
        JointLive().jobs(1, policy=["oracle"])


def run(experiment, job, out):
    rows = [job | row for row in experiment.run(job)]
    report = experiment.report(rows, out)
    total = next(row for row in rows if row["row"] == "total")
    assert (total["lost"], total["doubled"], total["reordered"]) == (0, 0, 0)
    assert total["deliveries"] > 100
    for picture in out.glob("*.png"):
        assert picture.stat().st_size > 1000
        assert picture.name in report.text
    assert list(out.glob("*.png"))
    return total, rows


def test_two_swarms_change_zones_and_their_topics_follow(tmp_path, nats_server):
    job = UavLive().jobs(1, policy=["oracle"], seconds=12, clients=10)[0] | {"side_km": 0.6, "seed": 1}

    total, rows = run(UavLive(), job, tmp_path)

    assert total["changes"] >= 2
    assert min(total["switches"], total["moves"]) >= 2
    moved = [at for row in rows if row["row"] == "group" for at in row["moved_at"]]
    assert moved


def test_avatars_change_groups_and_nothing_is_lost(tmp_path, nats_server):
    job = MmogLive().jobs(1, policy=["hash"], seconds=10, clients=16)[0]

    total, _ = run(MmogLive(), job, tmp_path)

    assert total["changes"] > 0
    assert total["moves"] == 0


def test_a_killed_hub_comes_back_and_no_message_is_lost(tmp_path, nats_server):
    job = UavLive().jobs(1, policy=["stay"], seconds=6, clients=4, still=True, kill_hub=True)[0]

    total, rows = run(UavLive(), job, tmp_path)

    began, ended = total["away_at"]
    assert 0.0 < began < ended < 6.5
    assert total["away_inside"] is not None
    assert total["changes"] == total["moves"] == total["switches"] == 0
    assert [row["group"] for row in rows if row["row"] == "group"] == ["swarm-0"]


def test_topics_begin_where_each_placement_has_them(tmp_path, nats_server):
    job = JointLive().jobs(1, policy=["processing"], seconds=3)[0] | {"warm": 1.0}

    total, rows = run(JointLive(), job, tmp_path)

    inside = {row["group"]: row["inside"] for row in rows if row["row"] == "group"}
    assert len(inside) == 6  # the busy topics are not judged
    assert inside["joint-0-1"] == inside["joint-1-1"] == 0.0  # in the other city, whatever else the machine does
    assert total["inside"] <= 2 / 3
