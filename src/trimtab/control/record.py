"""What the controller keeps at the hub: every decision with all it was made from, and what is going on."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from nats.js.errors import KeyNotFoundError, NotFoundError

from trimtab.control.decide import NoPlan, Question, decide
from trimtab.control.plan import Plan
from trimtab.control.view import View
from trimtab.errors import BadInput, UnknownName
from trimtab.fleet import wire
from trimtab.fleet.keeper import DECISIONS, SNAPSHOT
from trimtab.fleet.latest import latest
from trimtab.observe.snapshot import ABOUT, in_parts, unpack

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

    # Snapshots.

    async def snapshot(self, newer_than: int = 0) -> tuple[int, Snapshot] | None:
        """The newest and its number, if there is a newer one than that."""
        found = await latest(self._connection, SNAPSHOT, [ABOUT])
        about: dict[str, Any] = json.loads(found[ABOUT].data) if found else {"number": newer_than}
        if about["number"] <= newer_than:
            return None
        data = await self._joined(SNAPSHOT, about["parts"])
        if data is None or len(data) != about["bytes"]:
            return None  # it has been replaced while it was read
        return about["number"], unpack(data)

    async def _joined(self, stream: str, subjects: list[str]) -> bytes | None:
        """The last messages of these, one after the other, if they are all there."""
        found = await latest(self._connection, stream, subjects)
        return b"".join(found[each].data for each in subjects) if len(found) == len(subjects) else None

    # State.

    async def read_state(self) -> dict[str, Any]:
        try:
            return wire.unpacked((await self._bucket.get(STATE)).value)
        except KeyNotFoundError:
            return {}

    async def write_state(self, state: dict[str, Any]) -> None:
        await self._bucket.put(STATE, wire.packed(state))

    # Decisions.

    async def decided(self, view: View | None, question: Question, made: Plan | NoPlan) -> None:
        """A decision and all that it takes to come to it again; without a view, it cannot be."""
        data = view.snapshot.pack() if view is not None else b""
        parts = in_parts(data)
        jetstream, head = self._connection.jetstream(), f"decision.{question.number}"
        for number, part in enumerate(parts):
            await jetstream.publish(f"{head}.snapshot.{number}", part)
        said: dict[str, Any] = {
            "question": question.as_json(), "homes": dict(view.homes) if view else {},
            "alive": list(view.brokers) if view else [], "parts": len(parts),
            "plan": made.as_json() if isinstance(made, Plan) else None,
            "why_not": made.why if isinstance(made, NoPlan) else "",
        }  # fmt: skip
        await jetstream.publish(f"{head}.made", wire.packed(said))

    async def came_of_it(self, number: int, outcome: dict[str, Any]) -> None:
        await self._connection.jetstream().publish(f"decision.{number}.outcome", wire.packed(outcome))

    async def decision(self, number: int) -> dict[str, Any]:
        head = f"decision.{number}"
        found = await latest(self._connection, DECISIONS, [f"{head}.made", f"{head}.outcome"])
        if f"{head}.made" not in found:
            raise UnknownName("decision", str(number), [str(each) for each in await self.numbers()])
        said = wire.unpacked(found[f"{head}.made"].data)
        outcome = found.get(f"{head}.outcome")
        return said | {"outcome": wire.unpacked(outcome.data) if outcome else None}

    async def numbers(self) -> list[int]:
        """Of all decisions that are kept, the oldest first."""
        try:
            info = await self._connection.jetstream().stream_info(DECISIONS, subjects_filter="decision.*.made")
        except NotFoundError:
            return []
        return sorted(int(subject.split(".")[1]) for subject in info.state.subjects or {})

    async def replay(self, number: int) -> tuple[Plan | NoPlan, bool]:
        """Decide again from what was kept; what comes out, and whether it is what came out then."""
        said = await self.decision(number)
        if not said["parts"]:
            raise BadInput(f"decision {number} was made by hand or without a measurement: there is nothing to replay")
        subjects = [f"decision.{number}.snapshot.{part}" for part in range(said["parts"])]
        data = await self._joined(DECISIONS, subjects)
        if data is None:
            raise BadInput(f"the measurement that decision {number} was made on is no longer kept")
        view = View.of(unpack(data), said["homes"], said["alive"])
        made = decide(view, Question.from_json(said["question"]))
        then = Plan.from_json(said["plan"]) if said["plan"] else None
        return made, made == then if isinstance(made, Plan) else then is None

    async def find(self, what: str) -> tuple[dict[str, Any], int | None]:
        """The newest decision of that number, or about that move or client; and which of its steps that is."""
        numbers = await self.numbers()
        if what.isdecimal() and int(what) in numbers:
            return await self.decision(int(what)), None
        for number in reversed(numbers):
            said = await self.decision(number)
            moves = (said["outcome"] or {}).get("moves", [])
            for at, step in enumerate((said["plan"] or {"steps": []})["steps"]):
                if what == step[0] or (at < len(moves) and what == moves[at]):
                    return said, at
        raise BadInput(f"no decision is called '{what}', and none has moved a client or made a move of that name")
