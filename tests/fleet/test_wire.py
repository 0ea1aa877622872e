"""Requests between the parts of a fleet."""

from __future__ import annotations

import pytest

from trimtab.errors import BadInput
from trimtab.fleet.protocol import wire


@pytest.mark.parametrize("clients", [1, 60_000])
def test_an_answer_may_be_larger_than_a_message(fleet, clients):
    """As that of the homes of all clients of a large fleet, of some megabytes."""
    homes = {f"client-{number}": {"home": f"b{number % 7}", "position": None} for number in range(clients)}

    async def answer(question):
        return {"entries": homes, "asked": question["kind"]}

    async def ask():
        admin = await fleet.launch.admin()
        listening = await admin.subscribe("admin.large", cb=wire.answering(answer))
        try:
            return await wire.ask(admin, "admin.large", {"kind": "client"}, 20.0)
        finally:
            await listening.unsubscribe()

    assert fleet.do(ask()) == {"entries": homes, "asked": "client"}


def test_what_is_refused_is_told(fleet):
    async def answer(question):
        raise BadInput(f"no {question['what']}")

    async def ask():
        admin = await fleet.launch.admin()
        listening = await admin.subscribe("admin.refused", cb=wire.answering(answer))
        try:
            await wire.ask(admin, "admin.refused", {"what": "way"})
        finally:
            await listening.unsubscribe()

    with pytest.raises(BadInput, match="no way"):
        fleet.do(ask())
