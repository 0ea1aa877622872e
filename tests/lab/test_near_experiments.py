"""The experiments about topics near their clients, in their shortest form."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.errors import BadInput
from trimtab.lab.embedding import Sites
from trimtab.lab.experiments.mmog import Figure4
from trimtab.lab.experiments.near import distinct_cities
from trimtab.lab.run import run
from trimtab.lab.worlds.mmog import Mmog, cities, to_brokers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "picture", "knobs"),
    [
        ("mmog", "figure-4.png", {"most": 5, "clients": 64}),
        ("uav", "figure-5-scattered.png", {"most": 4}),
        ("monitoring-size", "figure-6.png", {"most": 128}),
    ],
)
def test_an_experiment_reports_on_a_small_case(name, picture, knobs, tmp_path):
    done = run(name, 1, tmp_path, 1, lambda done, total: None, **knobs)

    assert not done.judged
    assert {path.name for path in done.files} >= {"report.md", "rows.parquet", picture}
    assert "nan" not in (tmp_path / "report.md").read_text().split("## Requirements")[0]


@pytest.mark.slow
def test_swarms_in_four_zones_are_served_without_violations(tmp_path):
    done = run("uav", 1, tmp_path, 1, lambda done, total: None, most=4)

    assert all(bar.met for bar in done.bars)
    assert done.figures["together 4 hash, nothing"] > 0.4


def test_cities_of_a_matrix_are_different_places_of_one_region(tmp_path):
    """Of three clusters, the largest one is the region; two nodes at one place are one city."""
    rng = np.random.default_rng(0)
    place = np.concatenate([rng.uniform(0, 40, (12, 2)), [[500.0, 0.0], [900.0, 0.0]]])
    place[1] = place[0]
    rtt = np.sqrt(((place[:, None] - place[None]) ** 2).sum(axis=2)) + 1.0
    np.fill_diagonal(rtt, 0.0)
    rtt[2, 3] = rtt[3, 2] = np.nan
    path = tmp_path / "matrix.txt"
    np.savetxt(path, rtt)

    chosen = distinct_cities(rtt, 20, rng)

    assert set(chosen) <= set(range(12))
    assert {0, 1} & set(chosen) != {0, 1}
    assert {2, 3} & set(chosen) != {2, 3}
    assert len(distinct_cities(rtt, 3, rng)) == 3
    with pytest.raises(BadInput, match=r"has fewer than 20 nodes in different places of one region: set --most"):
        Figure4().jobs(1, matrix=(str(path),), most=20)


def test_gateways_measure_the_broker_of_their_own_place():
    between = cities(12, np.random.default_rng(1))[2]

    sites = Sites.embedded(between, to_brokers(between), "robust", 3, 0)

    assert np.isfinite(np.diagonal(sites.measured_ms)).all()
    assert np.isfinite(sites.measured_ms).sum() < 12 * 12


def test_every_avatar_has_a_topic_that_its_whole_group_receives():
    load = Mmog(cities=4, clients=20, group=8).make(3)

    topic, client, role = load.links.topic, load.links.client, load.links.role
    assert np.array_equal(topic[role == 0], client[role == 0])
    groups = [frozenset(client[(role == 1) & (topic == each)].tolist()) for each in range(20)]
    assert sorted(map(len, set(groups))) == [4, 8, 8]
    assert all(each in group for each, group in enumerate(groups))
