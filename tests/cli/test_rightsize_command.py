"""The command rightsize on a workload folder, and what it refuses."""

from __future__ import annotations

import pytest

from trimtab.model.folder import write_workload
from trimtab.model.ids import Ids
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload


@pytest.fixture
def city(tmp_path):
    """Six topics of 27.33 messages/s and 20 ms: two brokers of two cores are too few for their traffic and a margin."""

    def write(brokers=4, **columns):
        rows = list(range(6))
        given = {"processing_ms": [20.0] * 6, "latency_ms": [200.0] * 6} | columns
        topics = Topics(Ids.numbered("t", 6), [27.33] * 6, **{name: value for name, value in given.items() if value})
        links = Links.subscriptions(rows, rows)
        clients, table = Clients(Ids.numbered("c", 6)), Brokers(Ids.numbered("b", brokers))
        write_workload(Workload(topics, clients, table, links), tmp_path / "city")
        return tmp_path / "city"

    return write


def test_a_table_says_how_many_brokers_are_needed_and_why(trimtab, city):
    done = trimtab("rightsize", city(), "--profile", "plain")

    assert done.code == 0
    assert "the next 1 h needs 3 brokers of 4" in done.out
    assert "why: 2 would have too little time to keep all latency bounds" in done.out
    assert "no history yet: the present traffic, with a margin of 20%" in done.out


def test_too_few_brokers_are_exit_code_1(trimtab, city):
    done = trimtab("rightsize", city(brokers=2), "--profile", "plain", "--json")

    assert done.code == 1
    assert (done.json["brokers"], done.json["needed"], len(done.json["added"])) == (2, 3, 1)
    assert done.json["topics"]["t0"]["peak"] == pytest.approx(27.33 * 1.2)
    assert all(0 < topic["p90_ms"] <= 200 for topic in done.json["topics"].values())


def test_a_bound_below_the_time_of_one_message_is_refused_as_by_plan(trimtab, city):
    folder = city(latency_ms=[5.0] + [200.0] * 5)

    for command in (("rightsize", folder), ("plan", folder, "--family", "topic")):
        done = trimtab(*command)

        assert done.code == 2
        assert "topic 't0' has a bound of 5 ms, but a single message takes 28.9 ms on an empty broker" in done.err


def test_a_topic_with_too_many_messages_is_said_and_counts_as_a_broker(trimtab, city):
    few = trimtab("rightsize", city(), "--profile", "plain", "--json")
    done = trimtab("rightsize", city(processing_ms=[60.0] + [20.0] * 5, latency_ms=[1000.0] * 6), "--profile", "plain")
    answer = trimtab("rightsize", city(processing_ms=[60.0] + [20.0] * 5, latency_ms=[1000.0] * 6), "--json",
                     "--profile", "plain")  # fmt: skip

    assert few.code == 0
    assert done.code == answer.code == 1
    assert "topic 't0' will miss its bound: it is too much for any broker: split the topic" in done.out
    assert "1 topic is too much for any broker and counts as a broker of its own; for the others, " in done.out
    assert answer.json["too_much"] == ["t0"]
    assert answer.json["needed"] == 4  # one for t0, three for five topics of 0.7 cores each
    shared = [topic["broker"] for name, topic in answer.json["topics"].items() if name != "t0"]
    assert answer.json["topics"]["t0"]["broker"] not in shared


def test_topics_that_are_all_too_much_need_a_broker_each(trimtab, city):
    done = trimtab("rightsize", city(brokers=4, processing_ms=[60.0] * 6), "--profile", "plain", "--json")

    assert done.code == 1
    assert (done.json["needed"], len(done.json["added"]), len(done.json["too_much"])) == (6, 2, 6)
    assert done.json["why"] == "6 topics are too much for any broker and count as a broker of their own each"


def test_a_topic_without_headroom_alone_is_told_apart_from_one_that_misses_its_bound(trimtab, city):
    done = trimtab("rightsize", city(processing_ms=[28.0] + [20.0] * 5, latency_ms=[1000.0] * 6), "--profile", "plain")

    assert done.code == 1
    assert "alone there, its processor would be busy for 92% of the time, above 90%" in done.out


def test_it_predicts_with_the_same_machine_as_plan_unless_one_is_named(trimtab, city):
    folder = city()
    by_default = trimtab("rightsize", folder, "--json").json
    planned = trimtab("plan", folder, "--family", "topic", "--json").json
    named = trimtab("rightsize", folder, "--profile", "plain", "--json").json

    assert (by_default["hardware"], by_default["model"]) == (planned["hardware"], planned["model"])
    assert (by_default["hardware"], by_default["model_from"]) == ("xeon-e5420", "the default")
    assert (named["hardware"], named["model_from"]) == ("plain", "--profile plain")
    assert named["needed"] < by_default["needed"]
    assert (
        "latencies by the model 'queueing' of hardware 'xeon-e5420' (the default)" in trimtab("rightsize", folder).out
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--apply",), "--apply and --home are about a running fleet"),
        (("--hours", 0), "--hours"),
        (("--from", "nowhere"), "nowhere has no Parquet files"),
        (("--model", "nowhere"), "there is no nowhere to predict latencies by"),
        (("--profile", "nothing"), "there is no hardware profile 'nothing'"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(trimtab, city, arguments, sentence):
    done = trimtab("rightsize", city(), *arguments)

    assert done.code == 2
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_without_bounds_and_limits_there_is_nothing_to_go_by(trimtab, city):
    done = trimtab("rightsize", city(latency_ms=None, processing_ms=None))

    assert done.code == 2
    assert "nothing is known about how much a broker can carry" in done.err


def test_a_fleet_that_was_never_measured_says_what_to_run(trimtab, fleet):
    done = trimtab("rightsize", "--home", fleet.home)

    assert done.code == 2
    assert "there is no measurement of the fleet yet" in done.err
