"""What the controller keeps at the hub: every decision with all it was made from, and what is going on."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any, Final

from nats.js.api import Header
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError, NotFoundError

from trimtab.control.decide import NoPlan, decide
from trimtab.control.plan import Plan
from trimtab.control.question import Question
from trimtab.control.view import View
from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.protocol.latest import latest
from trimtab.fleet.protocol.snapshots import SnapshotAbout
from trimtab.fleet.protocol.streams import DECISIONS, SNAPSHOT
from trimtab.model.key import RoutingTable
from trimtab.observe.snapshot import in_parts, unpack

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.js.kv import KeyValue

    from trimtab.observe.snapshot import Snapshot

STATE: Final = "state"  # key of what is going on


class Record:
    """The decision log, the state, and snapshots as they come."""

    def __init__(self, connection: Nats, bucket: KeyValue) -> None:
        self._connection = connection
        self._bucket = bucket
        self._revision = 0  # of the state as this one knows it

    # Snapshots.

    async def snapshot(self, newer_than: int = 0) -> tuple[int, Snapshot] | None:
        """The newest and its number, if there is a newer one than that."""
        found = await latest(self._connection, SNAPSHOT, [subjects.SNAPSHOT_ABOUT])
        if not found:
            return None
        about = coding.decode(found[subjects.SNAPSHOT_ABOUT].data, SnapshotAbout)
        if about.number <= newer_than:
            return None
        data = await self._joined(SNAPSHOT, about.parts)
        if data is None or len(data) != about.bytes:
            return None  # it has been replaced while it was read
        return about.number, unpack(data)

    async def _joined(self, stream: str, subjects: list[str]) -> bytes | None:
        """The last messages of these, one after the other, if they are all there."""
        found = await latest(self._connection, stream, subjects)
        return b"".join(found[each].data for each in subjects) if len(found) == len(subjects) else None

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
        said: dict[str, Any] = {
            "question": question.as_json(), "routing": view.routing.as_json() if view else None,
            "alive": list(view.brokers) if view else [], "parts": list(parts),
            "plan": made.as_json() if isinstance(made, Plan) else None,
            "why_not": made.why if isinstance(made, NoPlan) else "",
        }  # fmt: skip
        await jetstream.publish(
            subjects.decision_made(decision),
            coding.encode(said),
            headers={Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: "0"},
        )

    async def came_of_it(self, number: int, outcome: dict[str, Any]) -> None:
        await self._connection.jetstream().publish(subjects.decision_outcome(number), coding.encode(outcome))

    async def decision(self, number: int) -> dict[str, Any]:
        made, came = subjects.decision_made(number), subjects.decision_outcome(number)
        found = await latest(self._connection, DECISIONS, [made, came])
        if made not in found:
            raise UnknownName("decision", str(number), [str(each) for each in await self.numbers()])
        said = coding.decode(found[made].data, dict[str, Any])
        outcome = coding.decode(found[came].data, dict[str, Any]) if came in found else None
        return said | {"outcome": outcome}

    async def numbers(self) -> list[int]:
        """Of all decisions that are kept, the oldest first."""
        try:
            every = subjects.decision_made(subjects.ANY)
            info = await self._connection.jetstream().stream_info(DECISIONS, subjects_filter=every)
        except NotFoundError:
            return []
        numbers = (subjects.decision_number(subject) for subject in info.state.subjects or {})
        return sorted(number for number in numbers if number is not None)

    async def replay(self, number: int) -> tuple[Plan | NoPlan, bool]:
        """Decide again from what was kept; what comes out, and whether it is what came out then."""
        said = await self.decision(number)
        if not said["parts"]:
            raise BadInput(f"decision {number} was made by hand or without a measurement: there is nothing to replay")
        data = await self._joined(DECISIONS, said["parts"])
        if data is None:
            raise BadInput(f"the measurement that decision {number} was made on is no longer kept")
        view = View.of(unpack(data), RoutingTable.from_json(said["routing"]), said["alive"])
        made = decide(view, Question.from_json(said["question"]))
        then = Plan.from_json(said["plan"]) if said["plan"] else None
        return made, made == then if isinstance(made, Plan) else then is None

    async def find(self, what: str) -> tuple[dict[str, Any], int | None]:
        """The newest decision of that number, or about that move, client, topic or link; and the step in question."""
        numbers = await self.numbers()
        if what.isdecimal() and int(what) in numbers:
            return await self.decision(int(what)), None
        for number in reversed(numbers):
            said = await self.decision(number)
            moves = (said["outcome"] or {}).get("moves", [])
            plan = Plan.from_json(said["plan"]) if said["plan"] else None
            for at, step in enumerate(plan.steps if plan else ()):
                if what in (step.key.name, str(step.key)) or (at < len(moves) and what == moves[at]):
                    return said, at
        raise BadInput(f"there is no decision '{what}', and none has moved a client, topic, link or move of that name")
