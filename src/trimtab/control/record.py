"""The controller's records at the hub: every decision with its inputs, and the controller's present state."""

from __future__ import annotations

import contextlib
import logging
import secrets
from typing import TYPE_CHECKING, Final

import msgspec
from nats.js.api import Header
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from trimtab.control.decide import NoPlan
from trimtab.control.memory import ControllerState
from trimtab.control.replay import replay
from trimtab.errors import BadInput, Unreachable
from trimtab.fleet.operator.decision_log import DecisionLog
from trimtab.fleet.operator.measurements import newest_snapshot
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.protocol.hosting import RULES, HostingRules
from trimtab.fleet.protocol.plans import Decision, DecisionMade, Outcome, Plan, Question, Routed
from trimtab.observe.snapshot import in_parts

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.js.kv import KeyValue

    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.observe.snapshot import Snapshot

log = logging.getLogger("trimtab.controller")
STATE: Final = "state"  # key of the controller's present state


class Record:
    """The decision log, the controller's state, and the newest snapshot."""

    def __init__(self, connection: Nats, bucket: KeyValue) -> None:
        self._connection = connection
        self._bucket = bucket
        self._log = DecisionLog(connection)
        self._revision = 0  # revision of the state at this controller's last read or write

    # Snapshots.

    async def snapshot(self, newer_than: int = 0) -> tuple[int, Snapshot] | None:
        """The newest snapshot and its number, if that number is above ``newer_than``."""
        return await newest_snapshot(self._connection, newer_than)

    # State.

    async def take_over(self, leader: str) -> ControllerState:
        """Name ``leader`` in the state and return the previous leader's state. Its later writes are refused."""
        while True:
            state, revision = await self._read()
            with contextlib.suppress(KeyWrongLastSequenceError):
                await self._replace(msgspec.structs.replace(state, leader=leader), revision)
                return state

    async def write_state(self, state: ControllerState) -> None:
        """Refused with ``Unreachable`` once another controller has taken over."""
        try:
            await self._replace(state, self._revision)
        except KeyWrongLastSequenceError:
            stored, revision = await self._read()
            if stored.leader != state.leader:
                raise Unreachable(f"{stored.leader} has taken over from {state.leader}") from None
            await self._replace(state, revision)  # the previous write had succeeded, and its reply was lost

    async def _read(self) -> tuple[ControllerState, int]:
        """The stored state and its revision. A state that another version wrote counts as none."""
        try:
            entry = await self._bucket.get(STATE)
        except KeyNotFoundError:
            return ControllerState(), 0
        try:
            state = coding.decode(entry.value or b"{}", ControllerState)
        except BadInput as error:
            log.warning("the stored state of the previous leader is not used: %s", error)
            state = ControllerState()
        return state, entry.revision or 0

    async def _replace(self, state: ControllerState, revision: int) -> None:
        self._revision = await self._bucket.update(STATE, coding.encode(state), last=revision)

    async def write_hosting(self, settings: Settings) -> None:
        """Store the rules by which the keeper chooses hosts of new topics."""
        rules = HostingRules(dict(settings.model), settings.headroom, settings.thrift)
        await self._bucket.put(RULES, coding.encode(rules))

    # Decisions.

    async def record_decision(self, view: View | None, question: Question, decision: Plan | NoPlan) -> None:
        """Record a decision with its inputs, so that it can be replayed; without a view it cannot be replayed.

        A number is written once: a deposed leader that does not know it yet cannot overwrite its successor's decision.
        """
        data = view.snapshot.pack() if view is not None else b""
        jetstream, number = self._connection.jetstream(), question.number
        attempt = secrets.token_hex(4)  # an attempt that was cut off may have left parts under the same number
        parts = {subjects.decision_part(number, attempt, at): part for at, part in enumerate(in_parts(data))}
        for subject, part in parts.items():
            await jetstream.publish(subject, part)
        record = DecisionMade(
            question=question,
            routing=Routed.of(view.routing) if view is not None else None,
            alive=list(view.brokers) if view is not None else [],
            parts=list(parts),
            plan=decision if isinstance(decision, Plan) else None,
            why_not=decision.why if isinstance(decision, NoPlan) else "",
        )
        await jetstream.publish(
            subjects.decision_made(number),
            coding.encode(record),
            headers={Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: "0"},
        )

    async def record_outcome(self, number: int, outcome: Outcome) -> None:
        await self._connection.jetstream().publish(subjects.decision_outcome(number), coding.encode(outcome))

    async def decision(self, number: int) -> Decision:
        return await self._log.decision(number)

    async def outcome(self, number: int) -> Outcome | None:
        """None also if the decision is no longer kept: the stream has discarded it."""
        found = await self._log.decisions([number])
        return found[0].outcome if found else None

    async def numbers(self) -> list[int]:
        """Numbers of all decisions that are kept, the oldest first."""
        return await self._log.numbers()

    async def replay(self, number: int) -> tuple[Plan | NoPlan, bool]:
        """Decide again from the recorded inputs. Returns the new decision, and whether it equals the recorded one."""
        return await replay(self._connection, await self._log.decision(number))
