"""Joins the parts of a large result, which comes in several messages, into one.

All parts of a result are stored after the results of earlier executions and before those of later ones. The parts are
nearly always in order, but an interrupted pipeline may store an earlier part after a later one. Each part contains the
number of parts and a stream sequence number after which all of them are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.fleet.protocol.hub_verbs import ResultRecord


@dataclass(frozen=True, slots=True)
class Part:
    """One message of a channel's results."""

    seq: int  # sequence number in the stream
    content: ResultRecord

    @property
    def number(self) -> int:
        return self.content.part

    @property
    def parts(self) -> int:
        return self.content.parts

    @property
    def after(self) -> int:
        """All parts of the same result are stored after this sequence number."""
        return self.content.after

    @property
    def result(self) -> tuple[int, int]:
        """The identity of the result, equal for all its parts.

        It includes the number of parts, because a repeated execution may give another number if the query has changed.
        """
        return self.content.execution, self.parts


@dataclass(frozen=True, slots=True)
class Assembled:
    """A result to deliver: a whole one, or a single part if other parts are lost."""

    seq: int
    execution: int
    at: str
    rows: list[dict[str, Any]]
    part: int = 1
    parts: int = 1
    left_out: int = 0
    reason: str = ""

    @classmethod
    def of(cls, some: list[Part], part: int = 1, parts: int = 1) -> Assembled:
        first = some[0].content
        return cls(
            max(item.seq for item in some), first.execution, first.at,
            [row for item in some for row in item.content.rows], part, parts,
            sum(item.content.left_out for item in some),
            next((item.content.reason for item in reversed(some) if item.content.reason), ""),
        )  # fmt: skip


@dataclass(slots=True)
class Assembly:
    """The parts received so far of one result. The first part of the next result replaces them."""

    _held: dict[int, Part] = field(default_factory=dict)  # by number

    def lacks_earlier(self, part: Part) -> bool:
        """Whether an earlier part of the same result is missing; the client may have subscribed in the middle."""
        held = self._held if self._is_of(part) else {}
        return part.parts > 1 and any(number not in held for number in range(part.number))

    def add(self, part: Part, earlier: Sequence[Part] = ()) -> list[Assembled]:
        """Add a part, and the ``earlier`` parts of the same result that were fetched. Return what can be delivered."""
        ready: list[Assembled] = []
        if self._held and not self._is_of(part):  # no more parts of the previous result will come
            ready = [Assembled.of([held], held.number + 1, held.parts) for _, held in sorted(self._held.items())]
            self._held.clear()
        if part.parts == 1:
            return [*ready, Assembled.of([part])]
        self._held |= {held.number: held for held in (*earlier, part)}
        if len(self._held) == part.parts:
            ready.append(Assembled.of([held for _, held in sorted(self._held.items())]))
            self._held.clear()
        return ready

    def _is_of(self, part: Part) -> bool:
        return any(held.result == part.result for held in self._held.values())
