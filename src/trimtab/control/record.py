"""What the controller keeps at the hub: every decision with all it was made from, and what is going on."""

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

STATE: Final = "state"  # key of what is going on


class Record:
    """The decision log, the state, and snapshots as they come."""

    def __init__(self, connection: Nats, bucket: KeyValue) -> None:
        self._connection = connection
        self._bucket = bucket
        self._log = DecisionLog(connection)
        self._revision = 0  # of the state as this one knows it

    # Snapshots.

    async def snapshot(self, newer_than: int = 0) -> tuple[int, Snapshot] | None:
        """The newest and its number, if there is a newer one than that."""
        return await newest_snapshot(self._connection, newer_than)

    # State.

    async def take_over(self, leader: str) -> dict[str, Any]:
        """The state as the leader before left it. Nothing that one still writes will be taken from now on."""
        while True:
            state = await self._read()
            with contextlib.suppress(KeyWrongLastSequenceError):
                await self._replace(state | {"leader": leader})
                return state

    async def write_state(self, state: dict[str, Any]) -> None:
        try:
            await self._replace(state)
        except KeyWrongLastSequenceError:
            now = await self._read()
            if now.get("leader") != state["leader"]:
                raise Unreachable(f"{now.get('leader')} has taken over from {state['leader']}") from None
            await self._replace(state)  # the last one had come, and the answer to it had not

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

    async def decided(self, view: View | None, question: Question, made: Plan | NoPlan) -> None:
        """A decision and all that it takes to come to it again; without a view, it cannot be.

        A number is given once: whoever has been deposed and does not know it yet cannot write over another's decision.
        """
        data = view.snapshot.pack() if view is not None else b""
        jetstream, decision = self._connection.jetstream(), question.number
        attempt = secrets.token_hex(4)  # one that died before it was done may have left parts
        parts = {subjects.decision_part(decision, attempt, at): part for at, part in enumerate(in_parts(data))}
        for subject, part in parts.items():
            await jetstream.publish(subject, part)
        said = {
            "question": question.as_json(), "routing": view.routing.as_json() if view else None,
            "alive": list(view.brokers) if view else [], "parts": list(parts),
            "plan": made.as_json() if isinstance(made, Plan) else None,
            "why_not": made.why if isinstance(made, NoPlan) else "",
        }  # fmt: skip
        await jetstream.publish(
            subjects.decision_made(decision),
            coding.encode(coding.from_plain(said, DecisionMade)),
            headers={Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: "0"},
        )

    async def came_of_it(self, number: int, outcome: dict[str, Any]) -> None:
        await self._connection.jetstream().publish(subjects.decision_outcome(number), coding.encode(outcome))

    async def decision(self, number: int) -> dict[str, Any]:
        """A decision and its outcome, in the form that ``Plan`` and ``Question`` are made from."""
        found: dict[str, Any] = coding.plain(await self._log.decision(number))
        return found

    async def numbers(self) -> list[int]:
        """Of all decisions that are kept, the oldest first."""
        return await self._log.numbers()

    async def replay(self, number: int) -> tuple[Plan | NoPlan, bool]:
        """Decide again from what was kept; what comes out, and whether it is what came out then."""
        return await replay(self._connection, await self._log.decision(number))
