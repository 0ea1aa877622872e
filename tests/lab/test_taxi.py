"""The taxi city: trips of a file or generated, regions of 500 m, a day with rush hours; and the service on a fleet."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import BadInput, BadKnob
from trimtab.lab.taxi_service import TaxiService
from trimtab.lab.worlds.taxi import DAY_S, Trips, activity, generated, read_trips

HEADER = "taxi,pickup_at,dropoff_at,trip_s,pickup_lon,pickup_lat,dropoff_lon,dropoff_lat\n"
REDUCED = HEADER + (
    "3,2013-01-01 00:05:00,2013-01-01 00:15:00,600,-73.99,40.72,-73.98,40.73\n"
    "0,2013-01-01 00:00:00,2013-01-01 00:10:00,600,-73.95,40.71,-73.96,40.71\n"
    "1,2013-01-01 00:01:00,2013-01-01 00:01:00,0,-73.95,40.71,-73.96,40.71\n"
    "2,2013-01-01 00:02:00,2013-01-01 00:09:00,420,0,0,-73.96,40.71\n"
)
CHALLENGE = (
    "07290D35,E7750A37,2013-01-01 00:00:00,2013-01-01 00:02:00,120,0.44,"
    "-73.956528,40.716976,-73.962440,40.715008,CSH,3.50,0.50,0.50,0.00,0.00,4.50\n"
)


def test_trips_are_read_in_order_of_their_begin_without_those_that_lack_a_position_or_a_duration(tmp_path):
    (tmp_path / "trips.csv").write_text(REDUCED)

    trips = read_trips(tmp_path / "trips.csv")

    assert trips.begin_s.tolist() == [0.0, 300.0]
    assert trips.end_s.tolist() == [600.0, 900.0]
    assert trips.begin.tolist() == [[40.71, -73.95], [40.72, -73.99]]


def test_files_of_the_grand_challenge_have_no_header(tmp_path):
    (tmp_path / "sorted_data.csv").write_text(CHALLENGE)

    trips = read_trips(tmp_path / "sorted_data.csv")

    assert trips.end_s.tolist() == [120.0]
    assert trips.end[0].tolist() == pytest.approx([40.715008, -73.962440])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "is empty"),
        ("a,b,c\n1,2,3\n", "line 1: no taxi trip"),
        (HEADER + "3,soon,later,600,1,2,3,4\n", "line 2: no taxi trip"),
        (HEADER, "has no trip"),
    ],
)
def test_what_is_no_file_of_trips_is_refused_with_the_line(tmp_path, content, sentence):
    (tmp_path / "trips.csv").write_text(content)

    with pytest.raises(BadInput, match=sentence):
        read_trips(tmp_path / "trips.csv")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        read_trips(tmp_path / "nowhere.csv")


def test_a_taxi_passes_the_regions_between_its_pickup_and_its_dropoff():
    """1,500 m to the north in a minute: three regions, a third of the time each."""
    metres = 1.0 / 111_320.0
    trips = Trips(
        np.array([0.0, 60.0]), np.array([60.0, 60.1]), np.zeros((2, 2)), np.array([[1499.0 * metres, 0.0], [0.0, 0.0]])
    )

    city = activity(trips, 9, 60)

    assert city.regions == ("0-0", "1-0", "2-0")
    assert city.taxis.sum(axis=1).tolist() == pytest.approx([20.0, 20.0, 20.0], abs=1.0)
    assert set(city.total().tolist()) == {1.0}


@given(st.integers(0, 50), st.integers(1, 12))
def test_no_more_taxis_are_counted_than_drive(seed, regions):
    trips = generated(300, seed)

    city = activity(trips, regions, 24)

    driving = [((trips.begin_s <= now) & (now < trips.end_s)).sum() for now in (np.arange(24) + 0.5) * city.step_s]
    assert (city.total() <= driving).all()
    assert len(city.regions) <= regions
    assert list(city.taxis.sum(axis=1)) == sorted(city.taxis.sum(axis=1), reverse=True)


def test_a_generated_day_has_rush_hours_and_a_quiet_night():
    total = activity(generated(20_000, 1), 10_000, 24).total()

    assert total[4] < 0.25 * total[18]
    assert total[9] > 1.2 * total[13]
    assert generated(100, 7).begin_s.max() <= DAY_S
    assert generated(100, 7).begin_s.tolist() == generated(100, 7).begin_s.tolist()


def test_a_city_without_trips_or_regions_is_refused():
    with pytest.raises(BadKnob, match="trips must be 1 or more"):
        generated(0, 0)
    with pytest.raises(BadKnob, match="regions must be 1 or more"):
        activity(generated(10, 0), 0, 10)


def test_the_peak_is_as_asked_for():
    city = activity(generated(5_000, 0), 8, 48)
    service = TaxiService(None, city, 10.0, 60.0)

    sums = [service.rates(share).sum() for share in np.arange(48) / 48]

    assert max(sums) == pytest.approx(60.0)


def test_a_short_day_on_a_live_fleet_keeps_its_promise(fleet):
    async def scenario():
        city = activity(generated(5_000, 0), 3, 24)
        service = TaxiService(fleet.home, city, 6.0, 20.0, "burn?ms=1", 1.0, cars=2)
        shares = []

        async def look(share):
            shares.append(share)

        await service.run(look)
        for tally in (service.gps, service.update):
            assert tally.sent > 0
            assert len(tally.delays_s) == tally.sent
            assert tally.kept(30.0) == 1.0
        assert shares == sorted(shares)
        async with fleet.client("sweeper") as client:
            for region in city.regions:
                assert (await client.topic(f"gps.{region}")).latency_ms == 1000.0
                await client.delete_topic(f"gps.{region}")
                await client.delete_topic(f"update.{region}")

    asyncio.run(scenario())
