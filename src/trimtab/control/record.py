"""The controller's records at the hub: every decision with its inputs, and the controller's present state."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any, Final

from nats.js.api import Header
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError

from trimtab.control.decide import NoPlan
from trimtab.control.plan import Plan
from trimtab.control.replay import replay
from trimtab.errors import Unreachable
from trimtab.fleet.operator.decision_log import DecisionLog
from trimtab.fleet.operator.measurements import newest_snapshot
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.protocol.plans import DecisionMade
from trimtab.observe.snapshot import in_parts

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.js.kv import KeyValue

    from trimtab.control.question import Question
    from trimtab.control.view import View
    from trimtab.observe.snapshot import Snapshot

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

    async def take_over(self, leader: str) -> dict[str, Any]:
        """Name ``leader`` in the state and return the previous leader's state. Its later writes are refused."""
        while True:
            state = await self._read()
            with contextlib.suppress(KeyWrongLastSequenceError):
                await self._replace(state | {"leader": leader})
                return state

    async def write_state(self, state: dict[str, Any]) -> None:
        try:
            await self._replace(state)
        except KeyWrongLastSequenceError:
            stored = await self._read()
            if stored.get("leader") != state["leader"]:
                raise Unreachable(f"{stored.get('leader')} has taken over from {state['leader']}") from None
            await self._replace(state)  # the previous write had succeeded, and its reply was lost

    async def _read(self) -> dict[str, Any]:
        try:
            entry = await self._bucket.get(STATE)
        except KeyNotFoundError:
            self._revision = 0
            return {}
        self._revision = entry.revision or 0
        return coding.decode(entry.value or b"{}", dict[str, Any])

    async def _replace(self, state: dict[str, Any]) -> None:
        self._revision = await self._bucket.update(STATE, coding.encode(state), last=self._revision)

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
        record = {
            "question": question.as_json(), "routing": view.routing.as_json() if view else None,
            "alive": list(view.brokers) if view else [], "parts": list(parts),
            "plan": decision.as_json() if isinstance(decision, Plan) else None,
            "why_not": decision.why if isinstance(decision, NoPlan) else "",
        }  # fmt: skip
        await jetstream.publish(
            subjects.decision_made(number),
            coding.encode(coding.from_plain(record, DecisionMade)),
            headers={Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: "0"},
        )

    async def record_outcome(self, number: int, outcome: dict[str, Any]) -> None:
        await self._connection.jetstream().publish(subjects.decision_outcome(number), coding.encode(outcome))

    async def decision(self, number: int) -> dict[str, Any]:
        """A decision and its outcome, as the JSON that ``Plan.from_json`` and ``Question.from_json`` read."""
        record: dict[str, Any] = coding.plain(await self._log.decision(number))
        return record

    async def numbers(self) -> list[int]:
        """Numbers of all decisions that are kept, the oldest first."""
        return await self._log.numbers()

    async def replay(self, number: int) -> tuple[Plan | NoPlan, bool]:
        """Decide again from the recorded inputs. Returns the new decision, and whether it equals the recorded one."""
        return await replay(self._connection, await self._log.decision(number))
