"""One move as a state machine: events in, instructions out, no clock and no network.

    PLANNED -> PREPARING -> HANDING_OVER -> SWITCHING -> ACTIVATING -> DRAINING -> DONE
                   |             |              |
                   +-------------+--------------+----> ROLLING_BACK -> ROLLED_BACK

| phase | what happens | if it goes wrong |
|---|---|---|
| PREPARING | the target loads the processor, copies stored messages, and subscribes | the target drops its copy |
| HANDING_OVER | the source stops and gives its state to the target (topics with state) | the source goes on |
| SWITCHING | the registry's route changes, at one moment | the source goes on |
| ACTIVATING | the target opens for stored messages, or processes (source dead, hub away) | repeated until it answers |
| DRAINING | clients open the new route, catch up, leave the old one | a lost client follows when it is back |

A source that dies before SWITCHING does not stop the move, unless it stores the topic's messages: the target goes on
without the source's state (a *takeover*). A takeover that fails ends as rolled back, and the next move of the key is a
takeover too. A move of stored messages waits for its source.

A move is make before break: until SWITCHING nothing has changed for a client, and after it the target is complete. Loss
of the hub stops the executor. It starts again with ``Restarted`` and the record of the move, and every instruction may
be given twice. Gupta (SEC'21, 3.6) releases the key before acquiring it elsewhere; this order removes the downtime
between the two.
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
    """A key that moves from a source broker to a target broker, and the phase of the move."""

    id: str
    key: Key  # a key is part of one move at a time
    source: str
    target: str
    stateful: bool = False  # a topic with a processor or with stored messages
    durable: bool = False  # a topic with stored messages
    takeover: bool = False  # the source is dead, and a topic with a processor starts at the target with empty state
    phase: Phase = Phase.PLANNED
    reason: str = ""  # why it was rolled back, or why it ended early
    interim: bool = False  # made by the source without the hub; the target serves only once it knows of the switch

    @property
    def unit(self) -> Unit:
        return self.key.unit

    @property
    def whole(self) -> bool:
        """Whether a whole topic moves, so that its processor and its stored messages change their host."""
        return self.key.unit == "topic"

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
    """The executor has restarted; the last instruction may or may not have been carried out."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The instruction given last has been carried out."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A broker, client or the registry refused the last instruction."""

    reason: str


@dataclass(frozen=True, slots=True)
class SourceSilent:
    """The source does not answer, but its broker is alive: its agent is slow or has restarted."""


@dataclass(frozen=True, slots=True)
class SourceLost:
    """The source's broker is dead."""


@dataclass(frozen=True, slots=True)
class TargetLost:
    """The target does not answer."""


Event = Started | Restarted | Succeeded | Refused | SourceSilent | SourceLost | TargetLost


# Instructions: what the executor must do. Each may be given more than once.


@dataclass(frozen=True, slots=True)
class Prepare:
    """Target: get ready to serve the key."""


@dataclass(frozen=True, slots=True)
class HandOver:
    """Source: stop, finish the messages received so far, give the state to the target."""


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
    """Source: drop the key. The move does not wait for the answer."""


@dataclass(frozen=True, slots=True)
class Undo:
    """Source: serve the key as before; target: drop it; registry: restore the route to the source."""


Instruction = Prepare | HandOver | Switch | Activate | Drain | Retire | Undo


class ImpossibleStep(TrimtabError):
    """An event that cannot happen in the phase the move is in."""

    def __init__(self, move: Move, event: Event) -> None:
        super().__init__(f"{event} cannot happen to {move} while it is {move.phase}")


def advance(move: Move, event: Event) -> tuple[Move, list[Instruction]]:
    """The state of the move after ``event``, and the instructions for the executor."""
    match move.phase, event:
        case Phase.PLANNED, Started() | Restarted():
            return _in(move, Phase.PREPARING), [Prepare()]
        case Phase.PLANNED, Refused() | SourceSilent() | SourceLost() | TargetLost():
            return _in(move, Phase.ROLLED_BACK, _why(move, event)), []

        case Phase.PREPARING, Succeeded():
            if move.stateful:
                return _in(move, Phase.HANDING_OVER), [HandOver()]
            return _in(move, Phase.SWITCHING), [Switch(move.target)]
        case Phase.HANDING_OVER, Succeeded():
            return _in(move, Phase.SWITCHING), [Switch(move.target)]
        case Phase.SWITCHING, Succeeded():
            if move.durable or move.takeover or move.interim:
                return _in(move, Phase.ACTIVATING), [Activate()]
            return _in(move, Phase.DRAINING), [Drain()]
        case Phase.ACTIVATING, Succeeded():
            return _in(move, Phase.DRAINING), [Drain()]
        case Phase.DRAINING, Succeeded():
            return _in(move, Phase.DONE), [Retire()]
        case Phase.ROLLING_BACK, Succeeded():
            return _in(move, Phase.ROLLED_BACK), []

        # The executor has restarted: repeat the last instruction, which may not have been carried out.
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

        # A dead source has nothing to hand over and cannot serve the key again, so there is no way back to it. Stored
        # messages survive at the source, so their move does go back, and waits for the source.
        case Phase.PREPARING, SourceLost() if not move.durable:
            return _taken_over(move, Phase.PREPARING), [Prepare()]
        case Phase.HANDING_OVER | Phase.SWITCHING, SourceLost() if not move.durable:
            return _taken_over(move, Phase.SWITCHING), [Switch(move.target)]
        # The target may have dropped the key. A takeover that cannot go on either needs no source to end.
        case Phase.ROLLING_BACK, SourceLost() if move.stateful and not move.durable:
            return _taken_over(move, Phase.PREPARING), [Prepare()]

        # Before the route has changed, any other failure rolls the move back. The source has lost nothing: it keeps
        # its state until it gets the instruction to retire.
        case (
            Phase.PREPARING | Phase.HANDING_OVER | Phase.SWITCHING,
            Refused() | SourceSilent() | SourceLost() | TargetLost(),
        ):
            return _in(move, Phase.ROLLING_BACK, _why(move, event)), [Undo()]

        # A target that dies right after a dead source leaves the topic to the next move.
        case Phase.ACTIVATING, Refused() | SourceSilent() | SourceLost() | TargetLost() if move.takeover:
            return _in(move, Phase.DONE, _why(move, event)), [Retire()]
        # After the route has changed, only the target has all stored messages, so the move can only go forward.
        case Phase.ACTIVATING, Refused() | SourceSilent() | SourceLost() | TargetLost():
            return replace(move, reason=_why(move, event)), [Activate()]

        # A client that cannot reach the target stays at the source; a topic's clients are reached either way.
        case Phase.DRAINING, Refused(reason):
            if move.whole:
                return _in(move, Phase.DONE, reason), [Retire()]
            return _in(move, Phase.ROLLING_BACK, reason), [Undo()]
        case Phase.DRAINING, SourceSilent() | SourceLost() | TargetLost():
            return _in(move, Phase.DONE, move.reason or _why(move, event)), [Retire()]
        case Phase.ROLLING_BACK, Refused() | SourceSilent() | SourceLost() | TargetLost():
            return move, [Undo()]
        case _:
            raise ImpossibleStep(move, event)


def _in(move: Move, phase: Phase, reason: str = "") -> Move:
    return replace(move, phase=phase, reason=reason or move.reason)


def _taken_over(move: Move, phase: Phase) -> Move:
    """The move without its source. Only a topic with a processor has to be activated at the target."""
    reason = f"{move.source} died while the move was {move.phase}"
    takeover = move.takeover or move.stateful
    return replace(move, phase=phase, reason=reason, stateful=False, takeover=takeover)


def _why(move: Move, event: Event) -> str:
    match event:
        case Refused(reason):
            return reason
        case SourceSilent() | SourceLost():
            return f"{move.source} does not answer while {move.phase}"
        case TargetLost():
            return f"{move.target} does not answer while {move.phase}"
        case _:
            return ""
