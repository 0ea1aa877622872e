"""The made-up city: people keep to its streets, emergencies to their rate, and subscriptions to the manifest.

And the books of those who run it live.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from trimtab.errors import BadInput, BadKnob
from trimtab.fleet.protocol.types import check_value, subscription_id
from trimtab.fleet.sdk.results import Result
from trimtab.lab import emergency
from trimtab.lab.worlds import city as world
from trimtab.lab.worlds.city import BLOCK_M, CENTRE, CHANNELS, DRIVING_M_S, KINDS, SIDE_M, WALKING_M_S, City
from trimtab.pipeline import geography, manifest

EXAMPLE = Path(__file__).parents[2] / "examples" / "emergency"
CENTIMETRE = 0.01


@pytest.fixture(scope="module")
def app():
    return manifest.load(EXAMPLE / "emergency.yaml")


def to_metres(lat, lon):
    """From the south-west corner: the way back, by what a degree is long."""
    degree_m = math.pi * geography.EARTH_KM * 1000 / 180
    y = (lat - CENTRE[0]) * degree_m + SIDE_M / 2
    x = (lon - CENTRE[1]) * degree_m * math.cos(math.radians(CENTRE[0])) + SIDE_M / 2
    return x, y


def distance_m(lat_1, lon_1, lat_2, lon_2):
    a, b, c, d = np.radians((lat_1, lon_1, lat_2, lon_2))
    half = np.sin((c - a) / 2) ** 2 + np.cos(a) * np.cos(c) * np.sin((d - b) / 2) ** 2
    return 2000 * geography.EARTH_KM * np.arcsin(np.sqrt(half))


# People.


@pytest.mark.parametrize("dt_s", [0.25, 7.0, 600.0])
def test_people_stay_on_streets_and_in_the_city(dt_s):
    city = City(seed=3, people=300)

    for _ in range(100):
        now = city.step(dt_s)
        x, y = to_metres(now.lat, now.lon)

        off_x, off_y = (np.abs(along - BLOCK_M * np.rint(along / BLOCK_M)) for along in (x, y))
        assert np.minimum(off_x, off_y).max() < CENTIMETRE
        for along in (x, y):
            assert along.min() > -CENTIMETRE
            assert along.max() < SIDE_M + CENTIMETRE


def test_nobody_is_faster_than_allowed_and_walkers_walk():
    city = City(seed=0, people=500)
    before = to_metres(*_place(city.step(0.0)))
    fastest = np.zeros(500)

    for _ in range(600):
        after = to_metres(*_place(city.step(1.0)))
        gone = np.abs(after[0] - before[0]) + np.abs(after[1] - before[1])
        fastest = np.maximum(fastest, gone)
        before = after

    assert fastest.max() <= DRIVING_M_S[1] + CENTIMETRE
    assert 0.60 < np.mean(fastest <= WALKING_M_S[1] + CENTIMETRE) < 0.80


def test_people_pause_and_go_on():
    city = City(seed=0, people=500)
    first = city.step(0.0)

    second, later = city.step(1.0), City(seed=0, people=500).step(1800.0)

    resting = np.mean((first.lat == second.lat) & (first.lon == second.lon))
    assert 0.03 < resting < 0.5
    assert np.mean(distance_m(first.lat, first.lon, later.lat, later.lon) > BLOCK_M) > 0.8


def test_steps_of_any_length_lead_to_the_same_place():
    small, large = City(seed=5, people=100), City(seed=5, people=100)

    for _ in range(4 * 900):
        at_last = small.step(0.25)

    assert np.array_equal(_place(at_last), _place(large.step(900.0)))


def test_two_cities_of_one_seed_are_the_same_bit_for_bit():
    one, other = City(seed=7, people=50), City(seed=7, people=50)

    for _ in range(50):
        assert np.array_equal(_place(one.step(13.7)), _place(other.step(13.7)))
    assert one.reports(0.0, 200.0) == other.reports(0.0, 200.0)
    assert [one.subscriptions(p) for p in range(50)] == [other.subscriptions(p) for p in reversed(range(50))][::-1]


def test_another_seed_is_another_city_on_the_same_map():
    one, other = City(seed=1, people=50), City(seed=2, people=50)

    assert not np.array_equal(_place(one.step(1.0)), _place(other.step(1.0)))
    assert one.reports(0.0, 60.0) != other.reports(0.0, 60.0)
    assert [one.subscriptions(p) for p in range(50)] != [other.subscriptions(p) for p in range(50)]


def _place(positions):
    return positions.lat, positions.lon


# Reports.


def test_reports_do_not_depend_on_how_the_time_is_cut():
    whole = City(seed=4).reports(0.0, 150.0)

    city = City(seed=4)
    ends = np.linspace(0.0, 150.0, 38)
    parts = [city.reports(a, b) for a, b in pairwise(ends)]

    assert [report for part in parts for report in part] == whole
    assert [report.at_s for report in whole] == sorted(report.at_s for report in whole)


@pytest.fixture(scope="module")
def eight():
    """Two minutes of eight cities."""
    return [City(seed=seed, report_rate_per_s=5.5).reports(0.0, 120.0) for seed in range(8)]


def test_reports_come_at_their_rate_from_the_start(eight):
    """A compound Poisson process: the variance is the rate of emergencies times the mean square of their reports."""
    means = np.array([mean for mean, _ in KINDS.values()])
    expected = 8 * 120.0 * 5.5
    emergencies = expected * world._popularity(len(KINDS)) / (world._popularity(len(KINDS)) @ means)
    deviation = np.sqrt(emergencies * (means - 1 + means**2))

    found = Counter(report.kind for reports in eight for report in reports)

    for at, kind in enumerate(KINDS):
        assert abs(found[kind] - emergencies[at] * means[at]) < 4 * deviation[at]
    assert abs(found.total() - expected) < 3 * np.linalg.norm(deviation)
    assert 3 * np.linalg.norm(deviation) < 0.15 * expected


def test_an_emergency_has_reports_near_each_other_and_the_emergencies_are_clustered():
    reports = City(seed=0).reports(0.0, 300.0)
    groups = {}
    for report in reports:
        groups.setdefault(report.emergency, []).append(report)

    apart = [distance_m(g[0].lat, g[0].lon, r.lat, r.lon) for g in groups.values() for r in g[1:]]
    assert np.mean(apart) < 250
    assert max(len(group) for group in groups.values()) >= 8
    assert all(len({report.kind for report in group}) == 1 for group in groups.values())
    square = world.SQUARES[0]
    near = np.mean([distance_m(square.lat, square.lon, r.lat, r.lon) < 1000 for r in reports])
    assert near > 3 * math.pi * 1000**2 / SIDE_M**2


def test_reports_are_of_the_size_and_form_that_feeds_have(app):
    schema = app.feeds["reports"].schema
    for number, report in enumerate(City(seed=0).reports(0.0, 120.0)):
        row = {
            "id": f"19a8c0ffee0-{number:06}", "kind": report.kind, "lat": report.lat, "lon": report.lon,
            "severity": report.severity, "at": "2026-03-31T12:00:00.000000Z", "text": report.text,
        }  # fmt: skip

        assert set(row) == set(schema)
        for name, value in row.items():
            check_value(schema[name], value, name)
        assert 1 <= report.severity <= 5
        assert 200 <= len(json.dumps(row)) <= 700


# Subscriptions.


def test_subscriptions_fit_the_manifest(app):
    assert set(CHANNELS) == set(app.channels)
    assert sum(weight for weight, _ in CHANNELS.values()) == pytest.approx(1.0)

    city = City(seed=0, people=200)
    for person in range(200):
        for channel, params in city.subscriptions(person):
            types = app.channels[channel].parameters
            assert set(params) == set(types)
            for name, value in params.items():
                check_value(types[name], value, f"{channel}.{name}")
            if "user" in params:
                assert params["user"] == city.names[person]


def test_everybody_has_one_to_five_channels_and_one_to_three_subscriptions_to_each():
    city = City(seed=0, people=200)
    channels, each = Counter(), Counter()

    for person in range(200):
        made = city.subscriptions(person)
        ids = {subscription_id(channel, params) for channel, params in made}
        assert len(ids) == len(made)
        counts = Counter(channel for channel, _ in made)
        channels[len(counts)] += 1
        each.update(counts.values())

    assert set(channels) == {1, 2, 3, 4, 5}
    assert set(each) == {1, 2, 3}
    # Uniform: 40 of 200, and a third of 600, with five standard deviations.
    assert all(abs(count - 40) < 5 * math.sqrt(200 * 0.2 * 0.8) for count in channels.values())
    n = sum(each.values())
    assert all(abs(count - n / 3) < 5 * math.sqrt(n * 2 / 9) for count in each.values())


def test_many_subscriptions_are_shared_as_in_the_paper():
    """Nguyen, 6.1: 400 subscribers make about 2,200 subscriptions, of which about 600 are different."""
    city = City(seed=0, people=400)
    made = [each for person in range(400) for each in city.subscriptions(person)]

    different = {subscription_id(channel, params) for channel, params in made}

    assert 2_100 < len(made) < 2_700
    assert 500 < len(different) < 800


# The live run's book-keeping; the run itself needs a fleet with a pipeline, and is in examples/emergency.


class Notebook:
    """A client that writes down what is published."""

    def __init__(self):
        self.sent = []

    async def publish(self, topic, data):
        self.sent.append((topic, json.loads(data)))

    def of_kind(self, kind):
        return [row for _, row in self.sent if row["kind"] == kind]


def live(people=5):
    city, client = City(seed=0, people=people), Notebook()
    outcome = emergency.Outcome(people, 1, 0, 60.0, {name: emergency.ChannelFigures(10.0) for name in CHANNELS})
    group = emergency._Group(client, range(people))
    run = emergency._Simulation(city, outcome, [group], {})
    run._began = time.time() - 1.0
    return run, city, client, group, outcome


def result(channel, rows):
    return Result(channel, "", 1, "2026-03-31T12:00:00Z", rows, 1)


def test_the_audit_finds_what_is_missing_and_what_came_twice():
    run, city, client, group, outcome = live()
    group.subscriptions = {
        kind: emergency._Subscription("reports_of_kind", {"kind": kind}) for kind in ("fire", "flood")
    }
    asyncio.run(run._publish_reports(city.reports(0.0, 60.0)))
    fires, floods = client.of_kind("fire"), client.of_kind("flood")

    run._receiver(group.subscriptions["fire"])(result("reports_of_kind", [*fires, *fires[:7]]))
    run._receiver(group.subscriptions["flood"])(result("reports_of_kind", floods[3:]))
    run._audit()

    heard = outcome.channels["reports_of_kind"]
    assert heard.expected == len(fires) + len(floods) > 20
    assert (heard.repeated, heard.missing) == (7, 3)
    assert (heard.results, heard.rows) == (2, len(fires) + len(floods) + 7 - 3)
    assert all(0.0 <= delay < 30.0 for delay in heard.delay_s)


@pytest.mark.parametrize(("off", "missing", "repeated"), [(0, 0, 0), (-2, 2, 0), (3, 0, 3)])
def test_the_audit_adds_up_counts_around_a_place(off, missing, repeated):
    run, city, client, group, outcome = live()
    square = world.SQUARES[0]
    params = {"lat": square.lat, "lon": square.lon, "km": 2.0}
    group.subscriptions = {"x": emergency._Subscription("counts_around", params)}
    asyncio.run(run._publish_reports(city.reports(0.0, 60.0)))
    near = sum(distance_m(row["lat"], row["lon"], square.lat, square.lon) <= 2000 for _, row in client.sent)

    at = client.sent[0][1]["at"]
    rows = [{"kind": "fire", "reports": 10, "at": at}, {"kind": "gas", "reports": near - 10 + off, "at": at}]
    run._receiver(group.subscriptions["x"])(result("counts_around", rows))
    run._audit()

    heard = outcome.channels["counts_around"]
    assert (heard.expected, heard.missing, heard.repeated) == (near, missing, repeated)


def test_what_was_missed_of_an_earlier_run_does_not_count():
    run, _, _, group, outcome = live()
    group.subscriptions = {"x": emergency._Subscription("near_me", {"user": "p0000", "km": 1.0})}

    run._receiver(group.subscriptions["x"])(result("near_me", [{"id": "old", "at": "2001-01-01T00:00:00.000Z"}]))

    heard = outcome.channels["near_me"]
    assert (heard.results, heard.rows, heard.executions) == (0, 0, set())


def test_positions_are_of_the_form_that_the_feed_has(app):
    run, city, client, _, outcome = live(people=20)

    asyncio.run(run._publish_positions(1.0, range(20)))

    schema = app.feeds["positions"].schema
    assert [row["user"] for _, row in client.sent] == list(city.names)
    for _, row in client.sent:
        assert set(row) == set(schema)
        for name, value in row.items():
            check_value(schema[name], value, name)
    assert outcome.positions == 20


@pytest.mark.slow
def test_an_outcome_is_drawn_and_told_also_when_nothing_came(tmp_path):
    *_, outcome = live()
    outcome.channels["near_me"].delay_s = [1.0, 3.0, 9.0]
    outcome.channels["near_me"].arrival_s = [10.0, 20.0, 30.0]

    emergency.draw(outcome, tmp_path / "plot.png")
    told = json.loads(json.dumps(outcome.as_json(), allow_nan=False))

    assert (tmp_path / "plot.png").stat().st_size > 10_000
    assert told["channels"]["near_me"]["p50_s"] == 3.0
    assert told["channels"]["flare_ups"]["p50_s"] is None


def test_a_fleet_without_the_application_is_told_what_to_start(fleet):
    with pytest.raises(BadInput, match="no channel 'reports_of_kind'; start it with: trimtab up --app"):
        asyncio.run(emergency.run(fleet.home, people=5))


# The rest.


def test_the_shelters_of_the_example_are_those_of_the_generator(app):
    """To make the file anew, write what shelters_csv() returns."""
    assert (EXAMPLE / "shelters.csv").read_text() == world.shelters_csv()

    found = world.shelters()
    assert len(found) == len({each.id for each in found}) == len({each.name for each in found}) == 200
    assert app.datasets["shelters"].file == EXAMPLE / "shelters.csv"


def test_the_examples_periods_are_those_of_the_paper(app):
    assert sorted(channel.period_s for channel in app.channels.values()) == [10, 10, 10, 20, 20, 30, 30]


@pytest.mark.parametrize(
    "make",
    [
        lambda: City(seed=-1),
        lambda: City(people=0),
        lambda: City(report_rate_per_s=math.nan),
        lambda: City(people=1).step(-1.0),
        lambda: City(people=1).step(math.inf),
        lambda: City(people=1).reports(10.0, 5.0),
        lambda: City(people=1).reports(-1.0, 5.0),
    ],
)
def test_a_knob_outside_its_range_is_named(make):
    with pytest.raises(BadKnob, match="city"):
        make()
