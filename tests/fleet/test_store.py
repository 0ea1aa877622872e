"""The streams of persistent topics: what is told when a store is slow or gone."""

from __future__ import annotations

import asyncio

import pytest
from nats.js.errors import NotFoundError

from trimtab.errors import Unreachable
from trimtab.fleet.broker import store as store_module
from trimtab.fleet.broker.store import Store
from trimtab.fleet.protocol.agent_verbs import Closed


class Silent(Store):
    """Every request for a new stream ends with this error."""

    def __init__(self, error):
        self._error = error

    def at(self, broker):
        return self

    async def add_stream(self, config):
        raise self._error


@pytest.mark.parametrize(("error", "changed"), [(NotFoundError(), False), (TimeoutError(), True)])
def test_a_stream_may_exist_if_the_store_gave_no_answer(error, changed):
    with pytest.raises(Unreachable, match="the store of broker 'b1' does not answer") as caught:
        asyncio.run(Silent(error).create("cam", "b1", 1))

    assert caught.value.changed is changed


def test_a_copy_whose_last_messages_never_come_is_not_waited_for_without_a_limit(fleet, topic, monkeypatch):
    """The executor gives up after a while, and its next order must not find the last one at work."""
    monkeypatch.setattr(store_module, "FINISH_S", 0.2)

    async def scenario():
        store = Store(await fleet.launch.admin())
        await store.create(topic, "b1", 1)
        await store.copy(topic, "b1", "b2", 1)
        with pytest.raises(Unreachable, match=f"'b2' has the messages of topic '{topic}' up to 0 of 7, and no more"):
            await store.finish(topic, "b2", Closed(7, {}))
        assert not await store.is_open(topic, "b2")
        for broker in ("b1", "b2"):
            await store.delete(topic, broker)

    fleet.do(scenario())
