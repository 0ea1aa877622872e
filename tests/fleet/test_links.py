"""Which links are open at a broker, and waiting until they are gone."""

from __future__ import annotations

import asyncio

import pytest

from helpers.waiting import turns
from trimtab.errors import BadInput
from trimtab.fleet import tasks
from trimtab.fleet.broker.links import EXPIRE_S, Links

PATIENCE_S = 30.0  # of a test that waits for what must happen


def everything(topic, client):
    return True


def of_topic(name):
    return lambda topic, client: topic == name


def some_links():
    links = Links()
    links.open("cam", "taxi", "pub")
    links.open("cam", "taxi", "sub")
    links.open("cam", "tram", "sub")
    links.open("gps", "taxi", "pub")
    return links


def in_loop(scene):
    """What ``scene(links)`` returns, in an event loop of its own."""

    async def run():
        return await scene(some_links())

    return asyncio.run(run())


def test_publishers_and_subscribers_are_counted_by_topic():
    async def scene(links):
        return links.counts()

    assert in_loop(scene) == {"cam": (1, 2), "gps": (1, 0)}


def test_clients_are_found_by_topic_and_topics_by_who_has_joined_them():
    async def scene(links):
        assert links.roles_by_client("cam") == {"taxi": {"pub", "sub"}, "tram": {"sub"}}
        assert links.take_joined() == {"cam", "gps"}
        assert links.take_joined() == set()
        assert links.topics_of({"tram", "nobody"}) == {"cam"}
        began = links.since("cam")
        links.open("cam", "bus", "sub")
        assert (links.take_joined(), links.since("cam")) == ({"cam"}, began)
        for client in ("taxi", "tram", "bus"):
            links.close("cam", client)
        assert links.roles_by_client("cam") == {}
        links.open("cam", "taxi", "pub")
        return links.since("cam") >= began and links.take_joined() == {"cam"}

    assert in_loop(scene)


def test_opening_a_link_twice_counts_once():
    async def scene(links):
        links.open("cam", "taxi", "pub")
        return links.counts()

    assert in_loop(scene)["cam"] == (1, 2)


def test_a_link_is_closed_role_by_role():
    async def scene(links):
        links.close("cam", "taxi", "pub")
        first = links.counts()["cam"], sorted(links.clients)
        links.close("cam", "taxi", "sub")
        links.close("gps", "taxi")
        return first, links.counts(), links.clients

    assert in_loop(scene) == (((0, 2), ["taxi", "tram"]), {"cam": (0, 1)}, {"tram"})


def test_a_link_without_a_role_named_is_closed_as_a_whole():
    async def scene(links):
        links.close("cam", "taxi")
        return links.counts()

    assert in_loop(scene) == {"cam": (0, 1), "gps": (1, 0)}


@pytest.mark.parametrize("link", [("new", "taxi"), ("cam", "new"), ("cam", "tram", "pub")], ids=str)
def test_closing_what_is_not_open_changes_nothing(link):
    async def scene(links):
        links.close(*link)
        return links.counts()

    assert in_loop(scene) == {"cam": (1, 2), "gps": (1, 0)}


def test_a_link_that_its_client_no_longer_lists_has_ended():
    async def scene(links):
        links.update("taxi", {"cam": ["pub", "sub"], "new": ["sub"]})
        return links.counts()

    assert in_loop(scene) == {"cam": (1, 2), "new": (0, 1)}


def test_a_client_that_lists_nothing_has_left():
    async def scene(links):
        links.update("taxi", {})
        return links.clients, links.counts()

    assert in_loop(scene) == ({"tram"}, {"cam": (0, 1)})


def test_a_client_that_has_not_reported_for_long_is_gone(monkeypatch):
    async def scene(links):
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        with monkeypatch.context() as patch:
            patch.setattr(loop, "time", lambda: began + EXPIRE_S - 0.5)
            links.update("tram", {"cam": ["sub"]})
            links.expire()
            before = set(links.clients)
            patch.setattr(loop, "time", lambda: began + EXPIRE_S + 1.0)
            links.expire()
        return before, links.clients

    assert in_loop(scene) == ({"taxi", "tram"}, {"tram"})


def test_waiting_for_links_that_are_not_there_takes_no_time():
    async def scene(links):
        await links.gone(of_topic("new"), 0.0)
        return True

    assert in_loop(scene)


@pytest.mark.parametrize(
    "end",
    [
        lambda links: links.close("cam", "tram", "sub"),
        lambda links: links.update("tram", {}),
        lambda links: links.update("tram", {"gps": ["sub"]}),
    ],
    ids=["closed", "left", "no longer listed"],
)
def test_whoever_waits_goes_on_when_the_last_such_link_ends(end):
    async def scene(links):
        waiting = asyncio.create_task(links.gone(of_topic("cam"), PATIENCE_S))
        await turns()
        links.close("cam", "taxi")
        await turns()
        early = waiting.done()
        end(links)
        await waiting
        return early

    assert in_loop(scene) is False


def test_a_link_that_opens_meanwhile_is_waited_for_too():
    async def scene(links):
        waiting = asyncio.create_task(links.gone(of_topic("gps"), PATIENCE_S))
        await turns()
        links.open("gps", "tram", "sub")
        links.close("gps", "taxi")
        await turns()
        early = waiting.done()
        links.close("gps", "tram")
        await waiting
        return early

    assert in_loop(scene) is False


def test_several_may_wait_for_different_links():
    async def scene(links):
        cam = asyncio.create_task(links.gone(of_topic("cam"), PATIENCE_S))
        gps = asyncio.create_task(links.gone(of_topic("gps"), PATIENCE_S))
        await turns()
        links.close("gps", "taxi")
        await gps
        early = cam.done()
        links.update("taxi", {})
        links.update("tram", {})
        await cam
        return early

    assert in_loop(scene) is False


def test_who_has_waited_long_enough_is_told_what_is_left():
    async def scene(links):
        await links.gone(of_topic("cam"), 0.01)

    with pytest.raises(BadInput) as caught:
        in_loop(scene)

    assert str(caught.value) == "2 links are still there after 0.01 s, of taxi for one"


@pytest.mark.parametrize("topic", ["gps", ""], ids=["this topic", "all its topics"])
def test_who_waits_is_told_when_a_client_says_that_it_cannot_leave(topic):
    async def scene(links):
        waiting = asyncio.create_task(links.gone(of_topic("gps"), PATIENCE_S))
        await turns()
        links.refuse(topic, "taxi", "taxi cannot reach b2")
        await waiting

    with pytest.raises(BadInput, match="taxi cannot reach b2"):
        in_loop(scene)


@pytest.mark.parametrize(("topic", "client"), [("cam", "taxi"), ("gps", "tram"), ("", "tram"), ("new", "new")])
def test_a_refusal_that_is_about_something_else_is_not_heard(topic, client):
    async def scene(links):
        waiting = asyncio.create_task(links.gone(of_topic("gps"), PATIENCE_S))
        await turns()
        links.refuse(topic, client, "cannot")
        links.close("gps", "taxi")
        return await waiting

    assert in_loop(scene) is None


def test_who_stops_waiting_is_forgotten():
    async def scene(links):
        waiting = asyncio.create_task(links.gone(everything, PATIENCE_S))
        await turns()
        await tasks.end(waiting)
        links.refuse("", "taxi", "cannot")
        links.update("taxi", {})
        links.update("tram", {})
        return waiting.cancelled(), links.clients

    assert in_loop(scene) == (True, set())
