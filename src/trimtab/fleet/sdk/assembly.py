"""Joins the parts of a large result, which comes in several messages, into one.

All parts of a result are stored after the results of earlier executions and before those of later ones, nearly always
in their order; a pipeline that was cut off may store an earlier part after a later one. Each part says how many there
are, and after which place of the stream the first of them is.
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

    seq: int  # its place in the stream
    content: ResultRecord

    @property
    def number(self) -> int:
        return self.content.part

    @property
    def parts(self) -> int:
        return self.content.parts

    @property
    def after(self) -> int:
        """All parts of the same result are stored after this place."""
        return self.content.after

    @property
    def result(self) -> tuple[int, int]:
        """The same for all parts of a result. A repeated execution whose query has changed may have other parts."""
        return self.content.execution, self.parts


@dataclass(frozen=True, slots=True)
class Assembled:
    """What is to be delivered: a whole result, or a part of one whose other parts are lost."""

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
            max(each.seq for each in some), first.execution, first.at,
            [row for each in some for row in each.content.rows], part, parts,
            sum(each.content.left_out for each in some),
            next((each.content.reason for each in reversed(some) if each.content.reason), ""),
        )  # fmt: skip


@dataclass(slots=True)
class Assembly:
    """The parts of one result that have come so far; those of another result take their place."""

    _held: dict[int, Part] = field(default_factory=dict)  # by number

    def lacks_earlier(self, part: Part) -> bool:
        """Whether a part before this one should have come by now: this client may have begun in the middle."""
        held = self._held if self._is_of(part) else {}
        return part.parts > 1 and any(number not in held for number in range(part.number))

    def add(self, part: Part, earlier: Sequence[Part] = ()) -> list[Assembled]:
        """What can be delivered now that this part has come, and ``earlier`` ones of the same result were found."""
        ready: list[Assembled] = []
        if self._held and not self._is_of(part):  # of the result before, no more parts come
            ready = [Assembled.of([each], each.number + 1, each.parts) for _, each in sorted(self._held.items())]
            self._held.clear()
        if part.parts == 1:
            return [*ready, Assembled.of([part])]
        self._held |= {each.number: each for each in (*earlier, part)}
        if len(self._held) == part.parts:
            ready.append(Assembled.of([each for _, each in sorted(self._held.items())]))
            self._held.clear()
        return ready

    def _is_of(self, part: Part) -> bool:
        return any(held.result == part.result for held in self._held.values())
