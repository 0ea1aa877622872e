"""What is read ahead of executions: everything once, in order, also when the server dies in between."""

import contextlib
import itertools

import pytest

from helpers.waiting import until_blocking
from trimtab.errors import Unreachable
from trimtab.pipeline import feed_reader as module
from trimtab.pipeline.feed_reader import FeedReader

LONG_S = 30.0


def piece(feed, after, upto, messages):
    return after, upto, messages


@pytest.fixture
def ahead(nats, stream):
    with contextlib.closing(FeedReader(nats.server, {"feed": {stream: 0}}, piece)) as made:
        yield made


def numbers(pieces):
    return [int(data) for _, _, messages in pieces for data in messages["data"].to_pylist()]


def taken(ahead, count):
    """Pieces with so many messages together."""
    pieces = []
    while sum(upto[name] - after[name] for after, upto, _ in pieces for name in upto) < count:
        some = ahead.take(LONG_S)
        assert some, "nothing came"
        pieces += some
    return pieces


def test_what_is_published_is_taken_in_order_with_its_positions(nats, stream, ahead):
    for first in range(1, 100, 20):
        nats.fill(stream, 20, first)

        pieces = taken(ahead, 20)

        assert numbers(pieces) == list(range(first, first + 20))
        assert pieces[0][0] == {stream: first - 1}
        assert pieces[-1][1] == {stream: first + 19}
        assert all(one[1] == other[0] for one, other in itertools.pairwise(pieces))
        assert set(pieces[0][2]["stream"].to_pylist()) == {stream}


def test_nothing_is_nothing(ahead):
    assert ahead.take(0.5) == []


def test_it_reads_while_nobody_takes(nats, stream, ahead):
    nats.fill(stream, 30)
    until_blocking(lambda: ahead._waiting == 30)

    assert numbers(ahead.take()) == list(range(1, 31))
    assert ahead.take() == []


def test_what_is_far_ahead_is_left_to_spark_in_parts_and_goes_on_from_there(nats, stream, monkeypatch):
    monkeypatch.setattr(module, "FEW", 10)
    monkeypatch.setattr(module, "AT_ONCE", 20)
    nats.fill(stream, 50)
    with contextlib.closing(FeedReader(nats.server, {"feed": {stream: 0}}, piece)) as ahead:
        pieces = taken(ahead, 50)
        nats.fill(stream, 5, 51)

        left = [(after[stream], upto[stream]) for after, upto, messages in pieces if messages is None]
        assert left == [(0, 20), (20, 40)]
        assert numbers([each for each in pieces if each[2] is not None]) == list(range(41, 51))
        assert numbers(taken(ahead, 5)) == list(range(51, 56))


def test_it_keeps_no_more_than_it_may(nats, stream, ahead, monkeypatch):
    monkeypatch.setattr(module, "MOST", 10)
    nats.fill(stream, 10)
    until_blocking(lambda: ahead._waiting == 10)
    nats.fill(stream, 10, 11)

    assert numbers(ahead.take()) == list(range(1, 11))
    assert numbers(taken(ahead, 10)) == list(range(11, 21))


def test_a_range_that_broke_off_is_read_once(nats, stream, ahead, monkeypatch):
    """As when a server dies after the first of two batches."""
    read = ahead._jetstream.read

    def broken(*where):
        yield from read(*where)
        raise ConnectionError("cut")

    monkeypatch.setattr(ahead._jetstream, "read", broken)
    nats.fill(stream, 20)
    with pytest.raises(ConnectionError):
        ahead.take(LONG_S)
    monkeypatch.setattr(ahead._jetstream, "read", read)
    with contextlib.suppress(ConnectionError):  # it may have tried again before
        ahead.take()

    assert numbers(taken(ahead, 20)) == list(range(1, 21))


def test_a_piece_that_could_not_be_made_is_made_again(nats, stream):
    def make(feed, after, upto, messages):
        if not tried:
            tried.append(upto)
            raise ValueError("no")
        return piece(feed, after, upto, messages)

    tried = []
    with contextlib.closing(FeedReader(nats.server, {"feed": {stream: 0}}, make)) as ahead:
        nats.fill(stream, 5)
        with pytest.raises(ValueError, match="no"):
            ahead.take(LONG_S)

        assert numbers(taken(ahead, 5)) == list(range(1, 6))


def test_feeds_are_read_together_and_later_ones_are_never_older(start_nats):
    """Who publishes to ``places`` before ``reports`` is found in both, or not in ``reports``."""
    server = start_nats()
    for name in ("places", "reports"):
        server.add_stream(name)

    def tagged(feed, after, upto, messages):
        return feed, upto[feed]

    seen = {"places": 0, "reports": 0}
    feeds = {"reports": {"reports": 0}, "places": {"places": 0}}
    with contextlib.closing(FeedReader(server.server, feeds, tagged)) as ahead:
        for number in range(1, 60):
            server.fill("places", 1, number)
            server.fill("reports", 1, number)
            seen |= dict(ahead.take())
            assert seen["places"] >= seen["reports"]
        while seen["reports"] < 59:
            seen |= dict(ahead.take(LONG_S))
        assert seen == {"places": 59, "reports": 59}


def test_what_others_are_looked_up_in_is_read_first_however_much_it_is(start_nats, monkeypatch):
    """Nobody's report is answered by where people were an hour ago."""
    monkeypatch.setattr(module, "FEW", 10)
    monkeypatch.setattr(module, "AT_ONCE", 20)
    server = start_nats()
    for name, count in (("places", 50), ("reports", 5)):
        server.add_stream(name)
        server.fill(name, count)
    pieces = []

    def tagged(feed, after, upto, messages):
        return feed, upto[feed]

    with contextlib.closing(
        FeedReader(server.server, {"reports": {"reports": 0}, "places": {"places": 0}}, tagged)
    ) as ahead:
        while ("reports", 5) not in pieces:
            pieces += ahead.take(LONG_S)

    assert pieces == [("places", 20), ("places", 40), ("places", 50), ("reports", 5)]


def test_a_server_that_is_gone_is_told_of_and_found_again(start_nats):
    server = start_nats()
    server.add_stream("mine")
    with contextlib.closing(FeedReader(server.server, {"feed": {"mine": 0}}, piece)) as ahead:
        server.kill()
        with pytest.raises(Unreachable):
            ahead.take(LONG_S)
        server.start()
        server.fill("mine", 5)
        with contextlib.suppress(Unreachable):
            ahead.take()

        assert numbers(taken(ahead, 5)) == list(range(1, 6))
