"""What is read ahead of executions: everything once, in order, nothing old, also when the server dies in between."""

import contextlib

import pytest

from trimtab.errors import Unreachable
from trimtab.pipeline import ahead as module
from trimtab.pipeline.ahead import Ahead


@pytest.fixture
def ahead(nats, stream):
    with contextlib.closing(Ahead(nats.server, {stream: 0})) as made:
        yield made


def numbers(taken):
    return [int(data) for data in taken[1]["data"].to_pylist()]


def test_what_was_just_published_is_taken(nats, stream, ahead):
    for first in range(1, 200, 20):
        nats.fill(stream, 20, first)
        taken = ahead.take()

        assert taken[0] == {stream: first + 19}
        assert numbers(taken) == list(range(first, first + 20))
        assert set(taken[1]["stream"].to_pylist()) == {stream}


def test_nothing_is_nothing(stream, ahead):
    upto, messages = ahead.take()

    assert (upto, messages.num_rows) == ({stream: 0}, 0)


def test_it_reads_while_nobody_takes(nats, stream, ahead, until):
    nats.fill(stream, 30)
    until(lambda: ahead._count == 30)

    assert numbers(ahead.take()) == list(range(1, 31))
    assert ahead.take()[1].num_rows == 0


def test_what_is_far_ahead_is_left_to_spark_and_goes_on_from_there(nats, stream, ahead, monkeypatch):
    nats.fill(stream, 5)
    assert len(numbers(ahead.take())) == 5
    monkeypatch.setattr(module, "FEW", 10)
    nats.fill(stream, 50, 6)
    assert ahead.take()[0] == {stream: 5}

    ahead.skip({stream: 50})

    assert numbers(ahead.take()) == list(range(51, 56))


def test_it_keeps_no_more_than_it_may(nats, stream, ahead, monkeypatch, until):
    monkeypatch.setattr(module, "MOST", 10)
    nats.fill(stream, 10)
    until(lambda: ahead._count == 10)
    nats.fill(stream, 10, 11)

    assert numbers(ahead.take()) == list(range(1, 11))
    assert numbers(ahead.take()) == list(range(11, 21))


def test_a_range_that_broke_off_is_read_once(nats, stream, ahead, monkeypatch):
    """As when a server dies after the first of two batches."""
    read = ahead._jetstream.read

    def broken(*where):
        yield from read(*where)
        raise ConnectionError("cut")

    monkeypatch.setattr(ahead._jetstream, "read", broken)
    nats.fill(stream, 20)
    with pytest.raises(ConnectionError):
        ahead.take()
    monkeypatch.setattr(ahead._jetstream, "read", read)

    assert numbers(ahead.take()) == list(range(1, 21))


def test_a_server_that_is_gone_is_told_of_and_found_again(start_nats):
    server = start_nats()
    server.add_stream("mine")
    server.fill("mine", 5)
    with contextlib.closing(Ahead(server.server, {"mine": 0})) as ahead:
        server.kill()
        with pytest.raises(Unreachable):
            ahead.take()
        server.start()

        taken = ahead.take()

    assert taken[0] == {"mine": 5}
    assert numbers(taken) == list(range(1, 6))
