"""Goals of the controller in strict order: an earlier goal may veto any change that a later one proposes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from trimtab.control.goals.evenness import Evenness
from trimtab.control.goals.limits import Limits
from trimtab.control.goals.served import Served

if TYPE_CHECKING:
    from trimtab.control.goals.goal import Goal

GOALS: Final[tuple[Goal, ...]] = (Served(), Limits(), Evenness())
