"""Which brokers are connected to the hub's server, by the server's own report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import nats.errors

from trimtab.fleet.protocol import subjects

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats


async def connected_brokers(system: Nats) -> set[str] | None:
    """Names of brokers with a leaf connection; None if the server does not answer."""
    identity = system._server_info.get("server_id", "")
    try:
        reply = await system.request(subjects.server_request(identity, "LEAFZ"), b"{}", timeout=1)
        leafs = json.loads(reply.data)["data"].get("leafs") or ()
        return {str(leaf.get("name", "")) for leaf in leafs}
    except (nats.errors.Error, TimeoutError, OSError, ValueError, KeyError):
        return None
