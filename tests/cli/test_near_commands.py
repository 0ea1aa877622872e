"""Topics near their clients on the command line: worlds, plans, comparisons, and bad input."""

from __future__ import annotations

import json

import pytest

from trimtab.lab.worlds.mmog import Mmog
from trimtab.lab.worlds.uav import Uav
from trimtab.model.folder import read_workload, write_workload


@pytest.fixture(scope="module")
def game(tmp_path_factory):
    home = tmp_path_factory.mktemp("game")
    write_workload(Mmog(cities=6, clients=64).make(0), home)
    return home


def two_brokers(home, clients="id,coordinate\nx,0 0 1\ny,40 0 1\n", bound="30", rtt=None):
    home.mkdir(exist_ok=True)
    files = {
        "topics": f"id,rate,latency_ms\nt,1,{bound}\n", "clients": clients,
        "brokers": "id,coordinate\nnear,20 0 0\nfar,500 0 0\n", "links": "topic,client,role\nt,x,pub\nt,y,sub\n",
    }  # fmt: skip
    for name, text in (files | ({"rtt": rtt} if rtt else {})).items():
        (home / f"{name}.csv").write_text(text)
    return home


@pytest.mark.parametrize(
    ("world", "options"), [("mmog", ["--cities", 5]), ("uav", ["--zones", 8, "--scattered", "true"])]
)
def test_worlds_have_coordinates_and_true_latencies(trimtab, tmp_path, world, options):
    made = trimtab("world", world, *options, "--seed", 3, "--out", tmp_path, "--json")

    load = read_workload(tmp_path)

    assert made.code == 0
    assert load.clients.coordinate.known.all()
    assert len(load.rtt) == len(load.clients) * len(load.brokers)


def test_swarms_are_in_one_zone_or_spread():
    for scattered, most in ((False, 1.0), (True, 31.0)):
        load = Uav(zones=8, scattered=scattered).make(1)

        own = load.rtt.rtt_ms.reshape(len(load.clients), 8)[:8]
        assert own.min(axis=1).tolist() == [1.0] * 8
        assert own[:, own[0].argmin()].max() == most


def test_a_plan_shows_network_latency_and_is_judged_alike(trimtab, game, tmp_path):
    plan = trimtab("plan", game, "--family", "topic", "--leg", 1, "--out", tmp_path, "--json")
    judged = trimtab("judge", game, tmp_path / "placement.csv", "--leg", 1, "--json")
    people = trimtab("plan", game, "--family", "topic", "--policy", "centroid", "--leg", 1)

    network = plan.json["judgement"]["network"]
    assert plan.json["bound"]["figure"] == "violating_pairs"
    assert (network["source"], network["leg"]) == ("measured", 1.0)
    assert judged.json["judgement"]["network"] == network
    assert "network latency (measured), worst pair" in people.out
    assert "pairs out of bound" in people.out


def test_policies_are_compared_by_pairs_out_of_bound(trimtab, game, tmp_path):
    arguments = ("compare", game, "--family", "topic", "--leg", 1, "--set", "hash.k=100")
    done = trimtab(*arguments, "--plot", tmp_path / "plot.png")
    machine = trimtab(*arguments, "--json").json

    assert done.code == 0
    for name in ("hash", "centroid", "all-pairs", "trim"):
        assert f"│ topic/{name} " in done.out
    assert "topic/ffd left out: topics has no column 'processing_ms'" in done.out
    assert "mean worst pair" in done.out
    assert machine["bound"]["figure"] == "violating_pairs"
    late = {each["policy"]: each["judgement"]["network"]["violating_pairs"] for each in machine["policies"]}
    assert late["topic/trim"] == min(late.values()) < late["topic/hash"]


def test_a_bound_that_no_broker_keeps_is_named_and_the_topic_is_placed(trimtab, tmp_path):
    home = two_brokers(tmp_path)

    done = trimtab("plan", home, "--family", "topic", "--leg", 1)
    machine = trimtab("plan", home, "--family", "topic", "--leg", 1, "--json")
    one_way = trimtab("plan", home, "--family", "topic", "--json")

    assert done.code == machine.code == 1
    assert "topic 't' has a bound of 30 ms, but the network alone takes up to 42 ms even at its best broker" in done.out
    assert machine.json["judgement"]["unplaced"] == 0
    assert machine.json["unreachable"] == [{"topic": "t", "bound_ms": 30.0, "best_ms": 42.0, "broker": "near"}]
    assert one_way.code == 0
    assert one_way.json["unreachable"] == []


def test_unusable_measurements_are_reported_and_the_rest_counts(trimtab, tmp_path):
    home = two_brokers(tmp_path, rtt="client,broker,rtt_ms\nx,near,-3\nx,far,1\ny,far,2\n")

    done = trimtab("plan", home, "--family", "topic", "--json")

    assert done.code == 0
    assert done.json["judgement"]["network"]["source"] == "mixed"
    assert done.json["judgement"]["network"]["topics"] == {"t": 1.5}


@pytest.mark.parametrize(
    ("clients", "arguments", "message"),
    [
        ("id,coordinate\nx,0 0 1\ny,40 1\n", [], "row 2 (line 3): coordinate has 2 numbers, but that of row 1 has 3"),
        ("id,coordinate\nx,0 1\ny,40 1\n", [], "brokers.csv, row 1 (line 2): coordinate has 3 numbers, but those of"),
        ("id\nx\ny\n", ["--policy", "centroid"], "clients has no column 'coordinate'"),
        ("id\nx\ny\n", ["--set", "by=network"], "clients has no column 'coordinate'"),
        ("id,coordinate\nx,0 0 1\ny,4 0 1\n", ["--leg", "0"], "--leg"),
        ("id,coordinate\nx,0 0 1\ny,4 0 1\n", ["--set", "by=both"], "topics has no column 'processing_ms'"),
        ("id,coordinate\nx,0 0 1\ny,4 0 1\n", ["--set", "margin_ms=-1"], "margin_ms must be a number, 0 or more"),
    ],
)
def test_bad_input_is_named(trimtab, tmp_path, clients, arguments, message):
    done = trimtab("plan", two_brokers(tmp_path, clients), "--family", "topic", *arguments)

    assert done.code == 2
    assert message in done.err + done.out


def test_both_latencies_are_shown_where_the_workload_has_both(trimtab, tmp_path):
    home = two_brokers(tmp_path, bound="200")
    (home / "topics.csv").write_text("id,rate,latency_ms,processing_ms\nt,5,200,10\n")

    done = trimtab("plan", home, "--family", "topic")
    compared = trimtab("compare", home, "--family", "topic", "--policies", "hash,ffd,all-pairs,trim")
    machine = json.loads(trimtab("plan", home, "--family", "topic", "--json").out)

    assert done.code == 0
    assert "topics out of bound by network and processing together" in done.out
    assert "by both" in compared.out
    assert machine["judgement"]["promises_broken"] == 0


def test_topics_without_room_are_counted_also_where_the_workload_has_no_bounds(trimtab, tmp_path):
    home = two_brokers(tmp_path)
    (home / "topics.csv").write_text("id,rate,processing_ms\nt,5,10\n")

    done = trimtab("plan", home, "--family", "topic", "--set", "messages=1")

    assert done.code == 1
    assert "1 topics find no broker" in done.out
