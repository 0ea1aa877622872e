"""The operator's settings of the hub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trimtab.errors import BadKnob
from trimtab.place.first import RULES

LEAST_S: Final = 5.0  # two lists of clients: agents send one every two seconds, and one may be late
YEARS_S: Final = 10 * 365 * 86_400.0


@dataclass(frozen=True, slots=True)
class HubSettings:
    """``[hub]`` of trimtab.toml."""

    forget_s: float = 7 * 86_400.0  # absence after which a client that was given a name is forgotten
    forget_unnamed_s: float = 600.0  # the same for a client without a name
    first: str = "roomiest"  # rule of first placements, see ``place/first.py``

    def __post_init__(self) -> None:
        for name in ("forget_s", "forget_unnamed_s"):
            value = getattr(self, name)
            if not LEAST_S <= value <= YEARS_S:
                raise BadKnob("hub", name, value, "from five seconds to ten years")
        if self.first not in RULES:
            raise BadKnob("hub", "first", self.first, f"one of {', '.join(RULES)}")
