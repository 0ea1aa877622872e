"""Reports of topics and brokers: they add up, and stay small."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from trimtab.observe.histogram import Histogram
from trimtab.observe.report import BrokerReport, ClientPosition, TopicReport

COUNTS = [name for name in TopicReport.__struct_fields__ if name not in ("busy_s", "latency")]
count = st.integers(0, 10**9)
busy = st.integers(0, 2**20).map(lambda n: n / 1024)  # sums of these are exact
latencies = st.dictionaries(st.integers(0, 290), st.integers(1, 1000), max_size=8).map(Histogram)
topic_reports = st.builds(TopicReport, **dict.fromkeys(COUNTS, count), busy_s=busy, latency=latencies)


def numbers(report):
    return {name: getattr(report, name) for name in (*COUNTS, "busy_s")} | {"latency": report.latency.counts}


def total(*reports):
    whole = TopicReport()
    for report in reports:
        whole.add(report)
    return whole


def through_json(encoded):
    return json.loads(json.dumps(encoded, allow_nan=False))


def client_report(latency_s):
    """What one busy client has to say."""
    report = TopicReport(in_msgs=100, in_bytes=9_000, out_msgs=90, out_bytes=8_000, publishers=1, subscribers=1)
    report.latency.add(latency_s)
    return report


@given(a=topic_reports, b=topic_reports, c=topic_reports)
def test_reports_add_up_in_any_order(a, b, c):
    one, other = total(a, b, c), total(total(c, b), a)

    assert numbers(one) == numbers(other)
    for name in (*COUNTS, "busy_s"):
        assert getattr(one, name) == getattr(a, name) + getattr(b, name) + getattr(c, name)
    assert one.latency.total == a.latency.total + b.latency.total + c.latency.total


@given(report=topic_reports)
def test_a_report_added_to_nothing_is_itself(report):
    assert numbers(total(report)) == numbers(report)


@given(report=topic_reports)
def test_a_topic_report_survives_json_without_its_zeros(report):
    encoded = through_json(report.encode())

    assert numbers(TopicReport.decode(encoded)) == numbers(report)
    assert all(value for name, value in encoded.items() if name not in ("busy_s", "latency"))


def test_a_report_of_nothing_is_empty():
    assert not TopicReport()
    assert TopicReport().encode() == {"latency": []}
    assert numbers(TopicReport.decode({})) == numbers(TopicReport())


def test_only_what_happened_is_told():
    report = TopicReport(in_msgs=3, busy_s=0.5)
    report.latency.add(0.001)

    assert set(report.encode()) == {"in_msgs", "busy_s", "latency"}


def test_a_topic_report_with_more_in_it_is_read_for_what_is_known():
    """A broker of a newer version must not silence an older hub."""
    report = TopicReport.decode({"in_msgs": 3, "colour": "blue"})

    assert numbers(report) == numbers(TopicReport(in_msgs=3))


def test_new_reports_do_not_share_a_histogram():
    TopicReport().latency.add(1.0)

    assert TopicReport().latency.total == 0


def test_an_entry_does_not_grow_with_the_number_of_clients():
    """Counts get longer by their digits only, and there are no more buckets than latencies of different size."""
    few = total(*(client_report(0.001 * (1 + each % 10)) for each in range(10)))
    many = total(*(client_report(0.001 * (1 + each % 10)) for each in range(10_000)))

    small, large = few.encode(), many.encode()

    assert set(small) == set(large)
    assert len(small["latency"]) == len(large["latency"])
    numbers_sent = len(large) - 1 + len(large["latency"])
    assert len(json.dumps(large)) <= len(json.dumps(small)) + 3 * numbers_sent


@given(
    figures=st.fixed_dictionaries(
        {}, optional={"cpu": busy, "memory_bytes": count, "stock": count, "out_bytes": count}
    ),
    topics=st.dictionaries(st.sampled_from(["cam", "cam.7", "taxi"]), topic_reports),
)
def test_a_broker_report_survives_json(figures, topics):
    report = BrokerReport("b1", at=1_700_000_000.25, period_s=1.0, **figures, topics=topics)

    received = BrokerReport.decode(through_json(report.encode()))

    assert received.encode() == report.encode()
    assert {topic: numbers(each) for topic, each in received.topics.items()} == {
        topic: numbers(each) for topic, each in topics.items()
    }


def test_a_broker_report_tells_its_figures_even_where_they_are_zero():
    encoded = BrokerReport("b1", at=5.0, period_s=1.0).encode()

    assert set(encoded) == set(BrokerReport.__struct_fields__)
    assert encoded["topics"] == {}
    assert encoded["connections"] == 0


def test_a_broker_report_with_more_or_less_in_it_is_read_for_what_is_known():
    report = BrokerReport.decode({"broker": "b1", "at": 5.0, "period_s": 1.0, "colour": "blue"})

    assert report == BrokerReport("b1", 5.0, 1.0)


def test_a_long_report_goes_out_in_parts_that_add_up():
    topics = {f"t.{number}": client_report(0.01) for number in range(1_203)}
    report = BrokerReport("b1", 100.0, 1.0, cpu=0.5, in_msgs=7, topics=topics)

    parts = [BrokerReport.decode(through_json(part.encode())) for part in report.parts()]

    assert [len(part.topics) for part in parts] == [500, 500, 203]
    assert {name for part in parts for name in part.topics} == set(topics)
    assert sum(part.in_msgs for part in parts) == 7
    assert {part.at for part in parts} == {100.0}
    assert max(len(json.dumps(part.encode())) for part in parts) < 500_000


def test_a_report_without_topics_is_one_part():
    assert len(list(BrokerReport("b1", 100.0, 1.0, cpu=0.5).parts())) == 1


def test_lists_of_clients_go_out_in_parts_too():
    links = {f"c{number}": {"gps": ["pub"]} for number in range(1_100)}
    published = {f"c{number}": {"gps": number} for number in range(1_300)}
    stock = {f"t{number}": number for number in range(501)}
    positions = {f"c{number}": ClientPosition("b1", float(number)) for number in range(1_001)}
    report = BrokerReport(
        "b1", 100.0, 1.0, links=links, published=published, stock_subscriptions=stock, positions=positions
    )

    parts = list(report.parts())

    lists = {"links": links, "published": published, "stock_subscriptions": stock, "positions": positions}
    for name, whole in lists.items():
        assert {key: value for part in parts for key, value in getattr(part, name).items()} == whole
        assert max(len(getattr(part, name)) for part in parts) == 500
    assert len(parts) == 3
    assert all(part.links is None for part in BrokerReport("b1", 100.0, 1.0, published=published).parts())


def test_a_report_says_whether_it_has_anything_to_tell():
    assert TopicReport(result_msgs=1)
    assert TopicReport(busy_s=0.1)
    assert TopicReport(latency=Histogram({3: 1}))
