"""Decides again from the data that was kept with a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.control.decide import NoPlan, decide
from trimtab.control.view import View
from trimtab.errors import BadInput
from trimtab.fleet.operator.measurements import joined, reading
from trimtab.fleet.protocol.plans import Plan
from trimtab.fleet.protocol.streams import DECISIONS
from trimtab.observe.snapshot import unpack

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats

    from trimtab.fleet.protocol.plans import Decision


async def replay(connection: Nats, decision: Decision) -> tuple[Plan | NoPlan, bool]:
    """Decide again. Returns the new decision, and whether it equals the recorded one."""
    number = decision.question.number
    if not decision.parts or decision.routing is None:
        raise BadInput(f"decision {number} was made by hand or without a measurement: there is nothing to replay")
    with reading():
        data = await joined(connection, DECISIONS, decision.parts)
    if data is None:
        raise BadInput(f"the measurement that decision {number} was made on is no longer kept")
    view = View.of(unpack(data), decision.routing.table(), decision.alive)
    replayed = decide(view, decision.question)
    return replayed, replayed == decision.plan if isinstance(replayed, Plan) else decision.plan is None
