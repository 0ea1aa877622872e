"""An agent's service for clients, without a fleet."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from trimtab.errors import BadInput, NoAnswer, VersionMismatch
from trimtab.fleet.broker.clients import ClientService
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.hub_verbs import Home, Register


def registered(monkeypatch, replies):
    """The clients that still wait after their registrations got these replies."""
    service = ClientService(SimpleNamespace(broker="b1", connection=None))
    service._waiting = {client: Register(client, "b1") for client in replies}

    async def ask(connection, request, *_):
        if isinstance(reply := replies[request.client], Exception):
            raise reply
        return reply

    monkeypatch.setattr(wire, "ask", ask)
    try:
        asyncio.run(service.register_waiting())
    except Exception as error:
        return list(service._waiting), type(error)
    return list(service._waiting), None


def test_a_registration_that_the_hub_refuses_does_not_keep_back_the_others(monkeypatch, caplog):
    """It would be refused every second, and the agent would never clean up after moves again."""
    replies = {"ann": Home("b1"), "bad name": BadInput("no such name"), "bob": Home("b2")}

    assert registered(monkeypatch, replies) == ([], None)
    assert "the hub refuses to register client bad name: no such name" in caplog.text


@pytest.mark.parametrize("error", [NoAnswer("nobody"), VersionMismatch("too old", 9)], ids=["away", "version"])
def test_registrations_wait_for_a_hub_that_cannot_take_them(monkeypatch, error):
    assert registered(monkeypatch, {"ann": error, "bob": Home("b1")}) == (["ann", "bob"], type(error))
