"""Plans that people ask for, and plans without a measurement."""

from __future__ import annotations

import pytest

from trimtab.control.requests import back, by_number
from trimtab.control.view import View
from trimtab.errors import BadInput
from trimtab.fleet.protocol.plans import FAILED, LINKS_PLACED, MOVED, Levels, Outcome, Plan, Step
from trimtab.model.ids import Ids
from trimtab.model.key import Key, RoutingTable
from trimtab.model.workload import Brokers, Clients, Links, Topics, Workload
from trimtab.observe.snapshot import Snapshot

ANN, BOB, LINK = Key("client", "", "ann"), Key("client", "", "bob"), Key("link", "news", "ann")
HOMES = {ANN: "b1", BOB: "b2", Key("client", "", "eve"): "b3"}
LEVELS = Levels(1.0, 1.0, 0.5)
CHANGED_LINKS = (Step.of(LINK, "", "b1"), Step.of(LINK._replace(client="bob"), "b2", ""))


def view(brokers=("b1", "b2")):
    workload = Workload(
        Topics(Ids(["t"]), [1.0]), Clients(Ids(["ann", "bob"])), Brokers(Ids(brokers)),
        Links.subscriptions([0, 0], [0, 1]),
    )  # fmt: skip
    return View.of(Snapshot(0.0, workload), RoutingTable.of_homes({"ann": "b2", "bob": "b2"}), list(brokers))


def test_without_a_measurement_only_keys_of_dead_brokers_move():
    """A cordoned broker is alive and keeps its keys, though it is no target."""
    alive = {"b1", "b2"}  # b3 is dead, b2 is cordoned

    plan = by_number(0.0, HOMES, lambda broker: broker not in alive, ["b1"])

    assert [(step.client, step.source, step.target) for step in plan.steps] == [("eve", "", "b1")]


def test_without_a_measurement_a_broker_is_emptied_to_those_that_are_open():
    plan = by_number(0.0, HOMES, "b2".__eq__, ["b1"], ("'b2' is to be removed",))

    assert [(step.client, step.source, step.target) for step in plan.steps] == [("bob", "b2", "b1")]
    assert by_number(0.0, HOMES, "b2".__eq__, []) is None


def made(links=CHANGED_LINKS):
    steps = (Step.of(ANN, "b1", "b2"), Step.of(BOB, "b1", "b2"))
    return Plan(7, 0.0, ("asked",), "apply", steps, LEVELS, LEVELS, links=links)


def test_a_plan_is_taken_back_with_its_links():
    placed = {ANN: "b2", BOB: "b2", LINK: "b1"}

    plan = back(1.0, view(), placed, made(), Outcome([MOVED, FAILED], links=LINKS_PLACED), "a mistake")

    assert plan.reasons == ("plan 7 is taken back: a mistake",)
    assert plan.steps == (Step.of(ANN, "b2", "b1"),)
    assert plan.links == (Step.of(LINK, "b1", ""), Step.of(LINK._replace(client="bob"), "", "b2"))


def test_links_that_were_not_placed_or_have_changed_since_stay():
    placed = {ANN: "b2", LINK: "b2", LINK._replace(client="bob"): "b1"}

    assert back(1.0, view(), placed, made(), Outcome([MOVED, FAILED]), None).links == ()
    assert back(1.0, view(), placed, made(), Outcome([MOVED, FAILED], links=LINKS_PLACED), None).links == ()
    with pytest.raises(BadInput, match="nothing that plan 7 has moved can go back"):
        back(1.0, view(), {}, made(()), Outcome([MOVED, MOVED]), None)
