"""One move as a state machine: events in, instructions out, no clock and no network.

    PLANNED -> PREPARING -> HANDING_OVER -> SWITCHING -> ACTIVATING -> DRAINING -> DONE
                   |             |              |
                   +-------------+--------------+----> ROLLING_BACK -> ROLLED_BACK

| phase | what happens | if it goes wrong |
|---|---|---|
| PREPARING | the target gets ready: loads the processor, copies what is stored, listens along | the target forgets it |
| HANDING_OVER | the source stops and gives its state to the target (topics that have one) | the source goes on |
| SWITCHING | the registry's route changes: the one moment at which the move becomes true | the source goes on |
| ACTIVATING | the target opens for stored messages, or processes if the source is dead | tried until it answers |
| DRAINING | clients open the new route, catch up, leave the old one | a client that is lost follows when it is back |

A move is make before break all the way: until SWITCHING nothing a client can see has changed, after it the new
place is complete. Loss of the hub stops the executor; it starts again with ``Restarted`` and the record of the
move, and every instruction may be given twice. Gupta (SEC'21, 3.6) releases first and acquires then; the
downtime between the two is what this order removes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from trimtab.errors import TrimtabError

if TYPE_CHECKING:
    from trimtab.model.key import Key, Unit


class Phase(StrEnum):
    PLANNED = "planned"
    PREPARING = "preparing"
    HANDING_OVER = "handing over"
    SWITCHING = "switching"
    ACTIVATING = "activating"
    DRAINING = "draining"
    DONE = "done"
    ROLLING_BACK = "rolling back"
    ROLLED_BACK = "rolled back"

    @property
    def over(self) -> bool:
        return self in (Phase.DONE, Phase.ROLLED_BACK)


@dataclass(frozen=True, slots=True)
class Move:
    """What moves from where to where, and how far it has come."""

    id: str
    key: Key  # can move once at a time
    source: str
    target: str
    stateful: bool = False  # a topic with a processor or with stored messages
    durable: bool = False  # a topic with stored messages
    takeover: bool = False  # a topic with a processor whose source is dead: the target begins anew
    phase: Phase = Phase.PLANNED
    reason: str = ""  # why it was rolled back, or what is left to say

    @property
    def unit(self) -> Unit:
        return self.key.unit

    @property
    def topic(self) -> str:
        return self.key.topic

    @property
    def client(self) -> str:
        return self.key.client

    def __str__(self) -> str:
        return f"{self.key} from {self.source} to {self.target}"


# Events: what has happened.


@dataclass(frozen=True, slots=True)
class Started:
    """The move's turn has come."""


@dataclass(frozen=True, slots=True)
class Restarted:
    """The executor was gone and is back; whatever was under way may or may not have been done."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The instruction given last has been carried out."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A part answered that it cannot do it."""

    reason: str


@dataclass(frozen=True, slots=True)
class SourceLost:
    """The source does not answer."""


@dataclass(frozen=True, slots=True)
class TargetLost:
    """The target does not answer."""


@dataclass(frozen=True, slots=True)
class ClientLost:
    """A client that should follow is gone."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The phase has taken longer than it may."""


Event = Started | Restarted | Succeeded | Refused | SourceLost | TargetLost | ClientLost | TimedOut


# Instructions: what the executor must do, once or again.


@dataclass(frozen=True, slots=True)
class Prepare:
    """Target: be ready to serve it."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Source: stop, finish what has come, give the state to the target."""


@dataclass(frozen=True, slots=True)
class Switch:
    """Registry: the route is now ``to``."""

    to: str


@dataclass(frozen=True, slots=True)
class Activate:
    """Target: open for stored messages."""


@dataclass(frozen=True, slots=True)
class Drain:
    """Wait until the clients have left the source."""


@dataclass(frozen=True, slots=True)
class Retire:
    """Source: forget it. Nobody waits for the answer."""


@dataclass(frozen=True, slots=True)
class Undo:
    """Source: serve it as before; target: forget it; registry: the route is the source, as before."""


Instruction = Prepare | HandOver | Switch | Activate | Drain | Retire | Undo


class ImpossibleStep(TrimtabError):
    """An event that cannot happen in the phase the move is in."""

    def __init__(self, move: Move, event: Event) -> None:
        super().__init__(f"{event} cannot happen to {move} while it is {move.phase}")


def advance(move: Move, event: Event) -> tuple[Move, list[Instruction]]:
    """Where a move stands after ``event``, and what must be done now."""
    match move.phase, event:
        case Phase.PLANNED, Started() | Restarted():
            return _in(move, Phase.PREPARING), [Prepare()]
        case Phase.PLANNED, Refused() | SourceLost() | TargetLost() | TimedOut():
            return _in(move, Phase.ROLLED_BACK, _why(move, event)), []

        case Phase.PREPARING, Succeeded():
            if move.stateful:
                return _in(move, Phase.HANDING_OVER), [HandOver()]
            return _in(move, Phase.SWITCHING), [Switch(move.target)]
        case Phase.HANDING_OVER, Succeeded():
            return _in(move, Phase.SWITCHING), [Switch(move.target)]
        case Phase.SWITCHING, Succeeded():
            if move.durable or move.takeover:
                return _in(move, Phase.ACTIVATING), [Activate()]
            return _in(move, Phase.DRAINING), [Drain()]
        case Phase.ACTIVATING, Succeeded():
            return _in(move, Phase.DRAINING), [Drain()]
        case Phase.DRAINING, Succeeded():
            return _in(move, Phase.DONE), [Retire()]
        case Phase.ROLLING_BACK, Succeeded():
            return _in(move, Phase.ROLLED_BACK), []

        # The executor is back: do again what may not have been done.
        case Phase.PREPARING, Restarted():
            return move, [Prepare()]
        case Phase.HANDING_OVER, Restarted():
            return move, [HandOver()]
        case Phase.SWITCHING, Restarted():
            return move, [Switch(move.target)]
        case Phase.ACTIVATING, Restarted():
            return move, [Activate()]
        case Phase.DRAINING, Restarted():
            return move, [Drain()]
        case Phase.ROLLING_BACK, Restarted():
            return move, [Undo()]

        # Before the route has changed, whatever fails leads back. The source has lost nothing: it keeps its
        # state until it is told to retire.
        case (
            Phase.PREPARING | Phase.HANDING_OVER | Phase.SWITCHING,
            Refused() | TargetLost() | SourceLost() | TimedOut(),
        ):
            return _in(move, Phase.ROLLING_BACK, _why(move, event)), [Undo()]

        # A target that dies right after a dead source leaves the topic to the next move.
        case Phase.ACTIVATING, Refused() | TargetLost() | SourceLost() | TimedOut() if move.takeover:
            return _in(move, Phase.DONE, _why(move, event)), [Retire()]
        # After it, stored messages exist in full at the target only: there is no way but forward.
        case Phase.ACTIVATING, Refused() | TargetLost() | SourceLost() | TimedOut():
            return replace(move, reason=_why(move, event)), [Activate()]

        # A client that cannot reach the new place stays where it is; a topic's clients are reached either way.
        case Phase.DRAINING, Refused(reason):
            if move.unit == "topic":
                return _in(move, Phase.DONE, reason), [Retire()]
            return _in(move, Phase.ROLLING_BACK, reason), [Undo()]
        case Phase.DRAINING, ClientLost() | SourceLost() | TargetLost() | TimedOut():
            return _in(move, Phase.DONE, _why(move, event)), [Retire()]
        case Phase.ROLLING_BACK, Refused() | TargetLost() | SourceLost() | TimedOut():
            return move, [Undo()]

        # Clients come and go; only DRAINING waits for them.
        case _, ClientLost() if not move.phase.over:
            return move, []
        case _:
            raise ImpossibleStep(move, event)


def _in(move: Move, phase: Phase, reason: str = "") -> Move:
    return replace(move, phase=phase, reason=reason or move.reason)


def _why(move: Move, event: Event) -> str:
    match event:
        case Refused(reason):
            return reason
        case SourceLost():
            return f"{move.source} does not answer while {move.phase}"
        case TargetLost():
            return f"{move.target} does not answer while {move.phase}"
        case ClientLost():
            return "a client was gone; it follows when it is back"
        case TimedOut():
            return f"{move.phase} took too long"
        case _:
            return ""
