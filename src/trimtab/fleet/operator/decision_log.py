"""Reads the log of decisions that controllers write at the hub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from nats.js.errors import NotFoundError

from trimtab.errors import BadInput, UnknownName
from trimtab.fleet.protocol import coding, subjects
from trimtab.fleet.protocol.latest import latest
from trimtab.fleet.protocol.plans import Decision, DecisionMade, Outcome
from trimtab.fleet.protocol.streams import DECISIONS

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats

AT_ONCE: Final = 20  # decisions in one request


class DecisionLog:
    def __init__(self, connection: Nats) -> None:
        self._connection = connection

    async def numbers(self) -> list[int]:
        """Numbers of all decisions that are kept, the oldest first."""
        try:
            every = subjects.decision_made(subjects.ANY)
            info = await self._connection.jetstream().stream_info(DECISIONS, subjects_filter=every)
        except NotFoundError:
            return []
        numbers = (subjects.decision_number(subject) for subject in info.state.subjects or {})
        return sorted(number for number in numbers if number is not None)

    async def decision(self, number: int) -> Decision:
        found = await self.decisions([number])
        if not found:
            raise UnknownName("decision", str(number), [str(kept) for kept in await self.numbers()])
        return found[0]

    async def decisions(self, numbers: list[int]) -> list[Decision]:
        """The decisions of these numbers that are kept."""
        records = []
        for at in range(0, len(numbers), AT_ONCE):
            some = numbers[at : at + AT_ONCE]
            wanted = [of(number) for number in some for of in (subjects.decision_made, subjects.decision_outcome)]
            messages = await latest(self._connection, DECISIONS, wanted)
            for number in some:
                decision = messages.get(subjects.decision_made(number))
                outcome = messages.get(subjects.decision_outcome(number))
                if decision is not None:
                    fields = msgspec.structs.asdict(coding.decode(decision.data, DecisionMade))
                    measured = coding.decode(outcome.data, Outcome) if outcome is not None else None
                    records.append(Decision(**fields, outcome=measured))
        return records

    async def newest(self, most: int) -> list[Decision]:
        """The newest decisions, the newest last."""
        return await self.decisions((await self.numbers())[-most:])

    async def find(self, name: str) -> tuple[Decision, int | None]:
        """The decision of that number; or the newest one with a step for the topic, client, link or move of that name,
        and the row of that step."""
        numbers = await self.numbers()
        if name.isdecimal() and int(name) in numbers:
            return await self.decision(int(name)), None
        for at in range(len(numbers), 0, -AT_ONCE):
            for decision in reversed(await self.decisions(numbers[max(0, at - AT_ONCE) : at])):
                moves = decision.outcome.moves if decision.outcome else []
                plan = decision.plan
                for row, step in enumerate([*plan.steps, *plan.links] if plan else ()):
                    if name in (step.key.name, str(step.key)) or (row < len(moves) and name == moves[row]):
                        return decision, row
        raise BadInput(f"there is no decision '{name}', and none has moved a client, topic, link or move of that name")
