"""What the controller keeps at the hub: every decision with all it was made from, and how far the present plan is."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from nats.js.errors import KeyNotFoundError, NotFoundError

from trimtab.control.decide import NoPlan, Question, decide
from trimtab.control.plan import Levels, Plan, Step
from trimtab.control.view import View
from trimtab.errors import BadInput, UnknownName
from trimtab.fleet.keeper import DECISIONS, SNAPSHOT
from trimtab.fleet.latest import latest
from trimtab.observe.snapshot import Snapshot, unpack

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats
    from nats.js.kv import KeyValue

PART: Final = 800_000  # bytes of a snapshot in one message
STATE: Final = "state"  # key of what is going on
WAITING, MOVING, MOVED, FAILED, DROPPED = "waiting", "moving", "moved", "failed", "dropped"


@dataclass(slots=True)
class Progress:
    """A plan on its way: what has become of every step."""

    plan: Plan
    by_hand: bool = False
    states: list[str] = field(default_factory=list)  # as many as steps
    moves: list[str] = field(default_factory=list)  # ids at the mover, once begun
    began: float = 0.0
    ended: float | None = None
    stopped: str = ""  # why the rest was dropped

    def __post_init__(self) -> None:
        self.states = self.states or [WAITING] * len(self.plan.steps)
        self.moves = self.moves or [""] * len(self.plan.steps)
        self.began = self.began or time.time()

    def count(self, state: str) -> int:
        return self.states.count(state)

    def of(self, state: str) -> list[Step]:
        return [step for step, its in zip(self.plan.steps, self.states, strict=True) if its == state]

    @property
    def left_s(self) -> float | None:
        """How long the rest takes, as it has gone so far."""
        done, left = self.count(MOVED) + self.count(FAILED), self.count(WAITING) + self.count(MOVING)
        return (time.time() - self.began) / done * left if done and left else None

    def drop(self, why: str) -> None:
        self.stopped = why
        self.states = [DROPPED if state == WAITING else state for state in self.states]

    def as_json(self) -> dict[str, Any]:
        return {
            "plan": self.plan.as_json(), "by_hand": self.by_hand, "states": self.states, "moves": self.moves,
            "began": self.began, "ended": self.ended, "stopped": self.stopped,
        }  # fmt: skip

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Progress:
        return cls(**(said | {"plan": plan_from_json(said["plan"])}))


def plan_from_json(said: dict[str, Any]) -> Plan:
    return Plan(
        said["number"], said["at"], tuple(said["reasons"]), said["policy"],
        tuple(Step(*each) for each in said["steps"]), Levels(**said["before"]), Levels(**said["predicted"]),
        said["left"],
    )  # fmt: skip


class Record:
    """The decision log, the state, and snapshots as they come."""

    def __init__(self, connection: Nats, bucket: KeyValue) -> None:
        self._connection = connection
        self._bucket = bucket

    # Snapshots.

    async def snapshot(self, newer_than: int = 0) -> tuple[int, Snapshot] | None:
        """The newest and its number, if there is a newer one than that."""
        about = await self._last(SNAPSHOT, "snapshot.about")
        if about is None or about["number"] <= newer_than:
            return None
        subjects = [f"snapshot.part.{about['slot']}.{part}" for part in range(about["parts"])]
        found = await latest(self._connection, SNAPSHOT, subjects)
        data = b"".join(found[subject].data for subject in subjects if subject in found)
        if len(data) != about["bytes"]:
            return None  # it has been replaced while it was read
        return about["number"], unpack(data)

    async def _last(self, stream: str, subject: str) -> Any:
        found = await latest(self._connection, stream, [subject])
        return json.loads(found[subject].data) if subject in found else None

    # State.

    async def read_state(self) -> dict[str, Any]:
        try:
            return dict(json.loads((await self._bucket.get(STATE)).value or b"{}"))
        except KeyNotFoundError:
            return {}

    async def write_state(self, state: dict[str, Any]) -> None:
        await self._bucket.put(STATE, json.dumps(state).encode())

    # Decisions.

    async def decided(self, view: View | None, question: Question, made: Plan | NoPlan) -> None:
        """A decision and all that it takes to come to it again; without a view, it cannot be."""
        data = view.snapshot.pack() if view is not None else b""
        parts = [data[at : at + PART] for at in range(0, len(data), PART)]
        jetstream, head = self._connection.jetstream(), f"decision.{question.number}"
        for number, part in enumerate(parts):
            await jetstream.publish(f"{head}.snapshot.{number}", part)
        said: dict[str, Any] = {
            "question": question.as_json(), "homes": dict(view.homes) if view else {},
            "alive": list(view.brokers) if view else [], "parts": len(parts),
            "plan": made.as_json() if isinstance(made, Plan) else None,
            "why_not": made.why if isinstance(made, NoPlan) else "",
        }  # fmt: skip
        await jetstream.publish(f"{head}.made", json.dumps(said).encode())

    async def came_of_it(self, number: int, outcome: dict[str, Any]) -> None:
        await self._connection.jetstream().publish(f"decision.{number}.outcome", json.dumps(outcome).encode())

    async def decision(self, number: int) -> dict[str, Any]:
        head = f"decision.{number}"
        found = await latest(self._connection, DECISIONS, [f"{head}.made", f"{head}.outcome"])
        if f"{head}.made" not in found:
            raise UnknownName("decision", str(number), [str(each) for each in await self.numbers()])
        said: dict[str, Any] = json.loads(found[f"{head}.made"].data)
        outcome = found.get(f"{head}.outcome")
        return said | {"outcome": json.loads(outcome.data) if outcome else None}

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
        found = await latest(self._connection, DECISIONS, subjects)
        if len(found) != len(subjects):
            raise BadInput(f"the measurement that decision {number} was made on is no longer kept")
        snapshot = unpack(b"".join(found[subject].data for subject in subjects))
        view = View.of(snapshot, said["homes"], said["alive"])
        made = decide(view, Question.from_json(said["question"]))
        then = plan_from_json(said["plan"]) if said["plan"] else None
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


def outcome_of(progress: Progress) -> dict[str, Any]:
    return {
        "states": progress.states, "moves": progress.moves, "began": progress.began, "ended": progress.ended,
        "stopped": progress.stopped,
    }  # fmt: skip


def levels(said: Levels | None) -> dict[str, float] | None:
    return asdict(said) if said is not None else None
