"""What it takes to bring a fleet to a placement, and which placements are refused."""

from __future__ import annotations

import pytest

from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet.operator.placement import changes
from trimtab.fleet.operator.state import FleetState
from trimtab.fleet.operator.tables import broker_rows, topic_rows
from trimtab.fleet.protocol.admin_verbs import Entries, PlacedLink
from trimtab.fleet.protocol.entries import BrokerEntry, ClientEntry, CordonEntry, LinkEntry, Topic
from trimtab.fleet.protocol.plans import Step
from trimtab.model.key import Key
from trimtab.observe.report import BrokerReport, TopicReport

TOPICS = {
    "whole": Topic("whole", "b1"),
    "stored": Topic("stored", "dead", persistent=True),
    "lost": Topic("lost", "dead"),
    "shared": Topic("shared", "b1", "client"),
    "linked": Topic("linked", "b1", "link"),
}
STATE = FleetState(
    ["b1", "b2", "full"], {name: BrokerEntry([]) for name in ("b1", "b2", "dead", "full")}, TOPICS,
    {"ann": ClientEntry("b1"), "bob": ClientEntry("b2")},
    {"ann.linked": LinkEntry("b1"), "bob.linked": LinkEntry("")}, {"full": CordonEntry("by hand", 0.0)},
)  # fmt: skip


def whole(name):
    return Key("topic", name, "")


def home(name):
    return Key("client", "", name)


def link(client):
    return Key("link", "linked", client)


def test_keys_of_all_units_move_together():
    found = changes(STATE, {whole("whole"): "b2", home("ann"): "b2", home("bob"): "b2", link("ann"): "b2"})

    assert found.steps == (
        Step("topic", "whole", "", "b1", "b2"),
        Step("client", "", "ann", "b1", "b2"),
        Step("link", "linked", "ann", "b1", "b2"),
    )
    assert [order.key for order in found.orders] == [whole("whole"), home("ann"), link("ann")]
    assert (found.links, found.stay) == ([], 0)


def test_links_are_admitted_and_refused():
    found = changes(STATE, {link("ann"): "", link("bob"): "b2"})

    assert found.links == [PlacedLink("ann", "linked", ""), PlacedLink("bob", "linked", "b2")]
    assert found.steps == ()
    assert changes(STATE, {link("bob"): ""}).links == []  # it is refused already


def test_topics_and_clients_without_a_broker_stay_and_plain_clients_are_passed_over():
    found = changes(STATE, {whole("whole"): "", home("ann"): "", home("stock-b1"): "b2"})

    assert (found.steps, found.links, found.stay) == ((), [], 2)


def test_a_key_of_a_broker_that_is_not_alive_has_no_source():
    assert changes(STATE, {whole("lost"): "b2"}).steps == (Step("topic", "lost", "", "", "b2"),)


@pytest.mark.parametrize(
    ("key", "broker", "error", "sentence"),
    [
        (whole("nope"), "b1", BadInput, "this fleet has no topic 'nope': the placement was made for another workload"),
        (home("nope"), "b1", BadInput, "this fleet has no client 'nope'"),
        (home("nope"), "", BadInput, "this fleet has no client 'nope'"),
        (Key("link", "linked", "nope"), "b1", BadInput, "this fleet has no client 'nope'"),
        (whole("shared"), "b2", BadInput, "topic 'shared' of this fleet is placed by client"),
        (Key("link", "whole", "ann"), "b2", BadInput, "topic 'whole' of this fleet is placed by topic"),
        (whole("whole"), "b9", UnknownName, "there is no broker 'b9'"),
        (whole("whole"), "dead", Unreachable, "broker 'dead' does not answer"),
        (whole("whole"), "full", BadInput, "broker 'full' is cordoned.*trimtab uncordon full"),
        (whole("stored"), "b1", Unreachable, "topic 'stored' waits for 'dead'"),
    ],
)
def test_what_the_fleet_does_not_have_is_refused(key, broker, error, sentence):
    with pytest.raises(error, match=sentence):
        changes(STATE, {home("ann"): "b2", key: broker})


def test_a_topic_waits_for_the_broker_that_stores_its_messages():
    rows = {row.topic: row for row in topic_rows(Entries(TOPICS, STATE.alive, []), {})}

    assert {name: row.waits_for for name, row in rows.items() if row.waits_for} == {"stored": "dead"}


def test_rows_of_brokers_show_cordons():
    rows = broker_rows(Entries(STATE.brokers, STATE.alive, []), STATE.cordoned)

    assert {row.broker: row.cordoned for row in rows if row.cordoned is not None} == {"full": "by hand"}
    assert [row.broker for row in rows if not row.alive] == ["dead"]


def test_rates_of_a_topic_are_added_up_over_reports_with_periods_of_their_own():
    reports = {
        "b1": BrokerReport("b1", 0.0, 2.0, topics={"whole": TopicReport(in_msgs=20, out_bytes=400)}),
        "b2": BrokerReport("b2", 0.0, 0.5, topics={"whole": TopicReport(in_msgs=5, out_bytes=50)}),
    }

    [row] = topic_rows(Entries({"whole": TOPICS["whole"]}, STATE.alive, []), reports)

    assert (row.in_per_s, row.out_bytes_per_s, row.out_per_s) == (20.0, 300.0, 0.0)
