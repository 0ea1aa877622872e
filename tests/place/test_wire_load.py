"""Wire load: copy by copy, as a mesh of servers carries them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.model.ids import Ids
from trimtab.model.judgement import Load
from trimtab.model.placement import UNPLACED, Placement
from trimtab.model.problem import Problem
from trimtab.model.workload import PUB, SUB, Brokers, Clients, Links, Topics, Workload
from trimtab.place.judge import judge
from trimtab.place.wire import Traffic


@st.composite
def fleets(draw):
    topics, clients, brokers = draw(st.integers(1, 4)), draw(st.integers(1, 5)), draw(st.integers(1, 4))
    pairs = [(k, i, role) for k in range(topics) for i in range(clients) for role in (PUB, SUB)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=14))
    rate = [draw(st.floats(0.0, 100.0)) for _ in range(topics)]
    weight = [draw(st.integers(1, 3)) if role == SUB else 0.0 for _, _, role in chosen]
    for k in range(topics):
        publishers = [at for at, each in enumerate(chosen) if each[0] == k and each[2] == PUB]
        shares = [draw(st.integers(1, 5)) for _ in publishers]
        for at, share in zip(publishers, shares, strict=True):
            weight[at] = share / sum(shares)
    columns = {}
    if draw(st.booleans()):
        columns = {
            "out_rate": [draw(st.floats(0.0, 100.0)) for _ in range(topics)], "out_bytes": np.ones(topics),
            "relayed": [draw(st.sampled_from([0.0, 1.0])) for _ in range(topics)],
        }  # fmt: skip
    rows = np.array(chosen, np.int32).reshape(-1, 3)
    workload = Workload(
        Topics(Ids.numbered("t", topics), rate, np.ones(topics), **columns), Clients(Ids.numbered("c", clients)),
        Brokers(Ids.numbered("b", brokers)),
        Links(rows[:, 0], rows[:, 1], rows[:, 2].astype(np.int8), np.array(weight, float)),
    )  # fmt: skip
    carrier = np.array([draw(st.integers(-1, brokers - 1)) for _ in chosen], np.int32)
    return workload, carrier


def copy_by_copy(workload, carrier, brokers):
    """In and out of each server, following every publication."""
    traffic = Traffic.of(workload)
    taken, given_ = np.zeros(brokers), np.zeros(brokers)
    links = list(zip(workload.links.topic, workload.links.role, traffic.weight, carrier, strict=True))
    for topic in range(len(workload.topics)):
        published, delivered = traffic.published[topic], traffic.delivered[topic]
        wanted = {at for k, role, _, at in links if k == topic and role == SUB and at != UNPLACED}
        for k, role, weight, at in links:
            if k == topic and role == SUB and at != UNPLACED:
                given_[at] += weight * delivered
        came = 0.0
        for k, role, share, at in links:
            if k != topic or role != PUB or at == UNPLACED:
                continue
            came += share
            taken[at] += share * published
            given_[at] += traffic.relayed[topic] * share * published  # to the processor
            taken[at] += traffic.relayed[topic] * share * delivered  # its results
            for other in wanted - {at}:
                given_[at] += share * delivered
                taken[other] += share * delivered
        for at in wanted:  # from outside the fleet
            taken[at] += (1.0 - came) * delivered
    return taken, given_


@settings(max_examples=300, deadline=None)
@given(fleets())
def test_every_copy_is_counted_once_where_it_crosses_a_server(fleet):
    workload, carrier = fleet
    brokers = len(workload.brokers)

    found = Traffic.of(workload).wire(carrier, brokers)
    taken, given_ = copy_by_copy(workload, carrier, brokers)

    assert found.incoming == pytest.approx(taken, abs=1e-9)
    assert found.outgoing == pytest.approx(given_, abs=1e-9)


@settings(max_examples=100, deadline=None)
@given(fleets())
def test_without_publishers_it_is_the_load_of_the_papers(fleet):
    workload, _ = fleet
    links = workload.links
    subscribes = links.role == SUB
    only = Workload(
        Topics(workload.topics.ids, workload.topics.rate, workload.topics.size_bytes), workload.clients,
        workload.brokers, Links(links.topic[subscribes], links.client[subscribes], links.role[subscribes]),
    )  # fmt: skip
    problem = Problem(only, "client")
    placement = Placement("client", np.arange(len(only.clients)) % len(only.brokers))

    judged = judge(problem, placement)
    carrier = placement.broker[problem.client]

    assert judged.load.per_broker == pytest.approx(Traffic.of(only).wire(carrier, problem.brokers).total)
    assert judged.wire.per_broker == pytest.approx(judged.load.per_broker)


def test_the_judge_counts_publications_that_pass_through():
    """One publisher at b0, a subscriber each at b1 and b2: b0 takes one copy and gives two."""
    workload = Workload(
        Topics(Ids(["t"]), [10.0]), Clients(Ids(["p", "s1", "s2"])), Brokers(Ids(["b0", "b1", "b2"])),
        Links([0, 0, 0], [0, 1, 2], [PUB, SUB, SUB]),
    )  # fmt: skip

    judged = judge(Problem(workload, "client"), Placement("client", [0, 1, 2]))

    assert judged.load.per_broker.tolist() == [0.0, 20.0, 20.0]
    assert judged.wire.per_broker.tolist() == [30.0, 20.0, 20.0]
    assert judged.as_json()["wire"]["max"] == 30.0
    assert Load(judged.wire.per_broker).cov > 0.0


def test_links_weigh_alike_if_nothing_is_said():
    workload = Workload(
        Topics(Ids(["t"]), [10.0]), Clients(Ids(["a", "b"])), Brokers(Ids(["b0"])),
        Links([0, 0, 0], [0, 1, 1], [PUB, PUB, SUB]),
    )  # fmt: skip

    assert Traffic.of(workload).weight.tolist() == [0.5, 0.5, 1.0]
