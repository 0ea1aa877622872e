"""The family topic on the command line: worlds, plans, comparisons, and bad input."""

from __future__ import annotations

import json

import pytest

TOPICS = "id,rate,processing_ms,latency_ms\n"


@pytest.fixture(scope="module")
def request_folder(tmp_path_factory):
    from trimtab.lab.worlds.colocation import Colocation
    from trimtab.model.folder import write_workload

    home = tmp_path_factory.mktemp("request")
    write_workload(Colocation("u5", topics=12).make(0), home)
    return home


def workload_in(home, topics: str):
    """A workload with two brokers and one subscription, to the last topic."""
    home.mkdir(exist_ok=True)
    links = f"topic,client,role\n{topics.split()[-1].split(',')[0]},c1,sub\n"
    for name, text in {
        "topics": TOPICS + topics, "brokers": "id\nb1\nb2\n", "clients": "id\nc1\nc2\nc3\nc4\n", "links": links,
    }.items():  # fmt: skip
        (home / f"{name}.csv").write_text(text)
    return home


def test_a_request_is_written_planned_and_judged(trimtab, tmp_path):
    home = tmp_path / "request"
    made = trimtab("world", "colocation", "--kind", "skew", "--topics", "12", "--seed", "3", "--out", home, "--json")
    assert made.json["topics"] == made.json["brokers"] == 12

    plan = trimtab("plan", home, "--family", "topic", "--set", "k=6", "--out", tmp_path / "plan", "--json")

    assert plan.code == 0
    answer = plan.json
    assert answer["policy"] == "topic/trim"
    assert answer["knobs"] == {"k": 6}
    assert answer["bound"]["figure"] == "brokers_used"
    assert answer["bound"]["value"] <= answer["judgement"]["brokers_used"]
    latency = answer["judgement"]["latency"]
    assert latency["topics_out_of_bound"] == 0
    assert 0.0 <= latency["messages_out_of_bound"] < 0.01
    assert set(latency["p90_ms"]) == {f"t{row}" for row in range(12)}
    judged = trimtab("judge", home, tmp_path / "plan" / "placement.csv", "--json").json
    assert judged["judgement"]["latency"] == latency


def test_people_read_the_latencies_in_the_table(trimtab, request_folder):
    done = trimtab("plan", request_folder, "--family", "topic", "--policy", "ffd")

    assert done.code == 0
    assert "topics out of bound" in done.out
    assert "p90 latency, slowest topic" in done.out
    assert "lower bound" in done.out


def test_policies_are_compared_by_brokers_and_topics_out_of_bound(trimtab, request_folder, tmp_path):
    plot = tmp_path / "compare.png"

    done = trimtab("compare", request_folder, "--family", "topic", "--plot", plot)

    assert done.code == 0
    for name in ("topic/hash", "topic/ffd", "topic/lfs", "topic/lfs-ffd", "topic/ilp", "topic/trim"):
        assert f"│ {name} " in done.out
    assert "topics out of bound" in done.out
    assert plot.stat().st_size > 1000


def test_a_topic_that_is_too_much_is_reported_with_the_way_out(trimtab, tmp_path):
    home = workload_in(tmp_path / "busy", "calm,5,10,1000\nbusy,150,10,1000\n")

    done = trimtab("plan", home, "--family", "topic")
    machine = trimtab("plan", home, "--family", "topic", "--json")

    assert done.code == machine.code == 1
    assert "topic 'busy' has 150 messages/s, but an empty broker carries 78" in done.out
    assert "--split DIR" in done.out
    (left,) = machine.json["left_over"]
    assert left["topic"] == "busy"
    assert left["divisible"]


def test_a_split_writes_the_parts_and_plans_them(trimtab, tmp_path):
    home = workload_in(tmp_path / "busy", "calm,5,10,1000\nbusy,150,10,1000\n")

    plan = tmp_path / "plan"
    done = trimtab("plan", home, "--family", "topic", "--split", tmp_path / "parts", "--out", plan, "--json")

    assert done.code == 0
    assert done.json["judgement"]["unplaced"] == 0
    assert list(done.json["judgement"]["latency"]["p90_ms"]) == ["calm", "busy#1", "busy#2"]
    judged = trimtab("judge", tmp_path / "parts", tmp_path / "plan" / "placement.csv", "--json")
    assert judged.json["judgement"]["latency"] == done.json["judgement"]["latency"]


@pytest.mark.parametrize(
    ("topics", "arguments", "message"),
    [
        ("a,5,10,12\n", [], "'a' has a bound of 12 ms, but a single message takes 14.8 ms on an empty broker"),
        ("a,5,10,1000\n", ["--set", "k=0"], "topic/trim: k must be a whole number, 1 or more, but is 0"),
        ("a,5,10,1000\n", ["--policy", "lfs-ffd", "--set", "k=2"], "k_prime must be at most k, which is 2"),
        ("a,5,10,nan\n", ["--set", "growth=-1"], "growth must be a number from 0 to 10"),
        ("a,5,-1,1000\n", [], "processing_ms is -1, but must be a finite number, zero or more"),
        ("a,5,10,1000\n", ["--policy", "ilp", "--set", "max_topics=0"], "max_topics must be"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(trimtab, tmp_path, topics, arguments, message):
    done = trimtab("plan", workload_in(tmp_path / "bad", topics), "--family", "topic", *arguments)

    assert done.code == 2
    assert message in done.err
    assert "Traceback" not in done.err
    assert len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("column", ["processing_ms", "latency_ms"])
def test_a_missing_column_is_named(trimtab, tmp_path, column):
    home = workload_in(tmp_path / "bad", "a,5,10,1000\n")
    kept = [name for name in ("id", "rate", "processing_ms", "latency_ms") if name != column]
    row = ["a" if name == "id" else "50" for name in kept]
    (home / "topics.csv").write_text(f"{','.join(kept)}\n{','.join(row)}\n")

    done = trimtab("plan", home, "--family", "topic")

    assert done.code == 2
    assert f"no column '{column}'" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "client", "--split", "x"], "--split is about topics"),
        (["--family", "topic", "--objective", "load"], "--objective is about homes"),
    ],
)
def test_options_of_other_families_are_refused(trimtab, request_folder, arguments, message):
    done = trimtab("plan", request_folder, *arguments)

    assert done.code == 2
    assert message in done.err


def test_an_unknown_kind_of_request_is_refused_and_nothing_is_written(trimtab, tmp_path):
    done = trimtab("world", "colocation", "--kind", "x", "--out", tmp_path / "none")

    assert done.code == 2
    assert "kind must be one of u, u5, skew" in done.err
    assert not (tmp_path / "none").exists()


def test_machines_read_the_world(trimtab, tmp_path):
    done = trimtab("world", "colocation", "--topics", "3", "--out", tmp_path / "w", "--json")

    assert json.loads(done.out)["options"] == {"kind": "u", "topics": 3, "latency_ms": 1000.0}
