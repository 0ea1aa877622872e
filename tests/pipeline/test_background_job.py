"""Work in a thread of its own, of which all but itself happens in this one."""

import contextlib
import threading

import pytest

from trimtab.pipeline.background_job import BackgroundJob


@pytest.fixture
def beside():
    with contextlib.closing(BackgroundJob()) as made:
        yield made


def test_it_is_done_elsewhere_and_finished_here(beside):
    here, seen = threading.get_ident(), []
    beside.start(threading.get_ident, lambda there: seen.append((there, threading.get_ident())))

    assert beside.busy
    assert beside.settle(wait=True)
    assert not beside.busy
    ((there, finished),) = seen
    assert there != here == finished
    assert not beside.settle(wait=True)


def test_nothing_is_finished_before_it_is_done(beside):
    go, seen = threading.Event(), []
    beside.start(go.wait, seen.append)

    assert not beside.settle()
    go.set()
    assert beside.settle(wait=True)
    assert seen == [True]


def test_what_it_uses_is_let_go_of_when_it_is_over(beside):
    go, dropped = threading.Event(), []
    beside.when_free(lambda: dropped.append("before"))
    assert dropped == ["before"]
    beside.start(go.wait, lambda _: dropped.append("finished"))
    beside.when_free(lambda: dropped.append("later"))
    assert dropped == ["before"]

    go.set()
    beside.settle(wait=True)

    assert dropped == ["before", "finished", "later"]


def test_what_goes_wrong_there_is_raised_here(beside):
    def work():
        raise ValueError("no")

    beside.start(work, lambda _: pytest.fail("there is nothing to finish"))
    with pytest.raises(ValueError, match="no"):
        beside.settle(wait=True)
    assert not beside.busy
