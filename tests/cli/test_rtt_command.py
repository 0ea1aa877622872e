"""``trimtab rtt`` over a fleet."""

from __future__ import annotations

from helpers.waiting import until_blocking
from trimtab.fleet.protocol.hub_verbs import Register


def test_the_time_between_two_brokers_is_a_table_and_json(fleet, trimtab):
    def estimated():
        done = trimtab("rtt", "b1", "b2", "--home", fleet.home, "--json")
        return done.json if done.code == 0 else None

    found = until_blocking(estimated)

    assert [node["name"] for node in found["nodes"]] == ["b1", "b2"]
    assert found["measured_ms"] > 0
    shown = trimtab("rtt", "b1", "b2", "--home", fleet.home)
    assert (shown.code, "round-trip time between b1 and b2" in shown.out, "estimated" in shown.out) == (0, True, True)
    assert {row["broker"]: row["probes"]["sent"] > 0 for row in trimtab(
        "brokers", "--home", fleet.home, "--json").json} == {"b1": True, "b2": True, "b3": True}  # fmt: skip


def test_a_client_that_has_not_reported_its_position_has_no_estimate(fleet, trimtab):
    fleet.ask(Register("ghost", "b1"))

    done = trimtab("rtt", "ghost", "b1", "--home", fleet.home, "--json")

    assert (done.code, done.json["estimated_ms"], done.json["measured_ms"]) == (1, None, None)
    assert done.json["reason"] == "client 'ghost' has not reported its position in the network lately"
    shown = trimtab("rtt", "ghost", "b1", "--home", fleet.home)
    assert (shown.code, "no estimate: client 'ghost'" in shown.out) == (1, True)


def test_plain_clients_are_at_their_broker(fleet, trimtab):
    found = trimtab("rtt", "stock-b3", "b3", "--home", fleet.home, "--json").json

    assert (found["nodes"][0]["gateway"], found["measured_ms"]) == ("b3", 0.0)


def test_unknown_names_and_a_pair_of_one_are_refused(fleet, trimtab):
    unknown = trimtab("rtt", "b1", "b17", "--home", fleet.home)
    assert (unknown.code, "there is no broker or client 'b17'; did you mean 'b1'?" in unknown.err) == (2, True)
    same = trimtab("rtt", "b1", "b1", "--home", fleet.home)
    assert (same.code, "the two nodes must differ, but both are 'b1'" in same.err) == (2, True)
