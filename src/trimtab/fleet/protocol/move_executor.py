"""What executors of moves share: the steps of a move, and the orders that carry out its instructions.

The keeper executes moves with the registry of the hub (``hub.mover``). While the hub is away, the host of a topic
executes the move of this topic itself (``broker.peer_moves``).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.errors import BadInput
from trimtab.fleet.protocol.agent_verbs import DrainLinks, ResumeTopic, RetireTopic
from trimtab.migrate.move import (
    Activate,
    Drain,
    Event,
    HandOver,
    Instruction,
    Move,
    Phase,
    Prepare,
    Restarted,
    Retire,
    SourceSilent,
    Succeeded,
    Switch,
    TargetLost,
    Undo,
    advance,
)

if TYPE_CHECKING:
    from trimtab.fleet.protocol.request import AgentRequest

log = logging.getLogger("trimtab.mover")
PREPARE_S: Final = 15.0
COPY_S: Final = 600.0  # long, because the topic stays in service while its stored messages are copied
HAND_OVER_S: Final = 15.0
DRAIN_S: Final = 10.0
AGAIN_S: Final = 0.5  # pause before a step that must succeed is tried again


class MoveExecutor(ABC):
    """Executes moves. A subclass knows how to reach the brokers, and how to change the registry."""

    @abstractmethod
    async def _order(self, broker: str, order: AgentRequest[Any], limit_s: float, lost: Event) -> Event:
        """Send an order to a broker's agent and return the event; ``lost`` if the broker does not answer."""

    @abstractmethod
    async def _prepare(self, move: Move) -> Event: ...

    @abstractmethod
    async def _hand_over(self, move: Move) -> Event: ...

    @abstractmethod
    async def _switch(self, move: Move, to: str) -> Event: ...

    @abstractmethod
    async def _activate(self, move: Move) -> Event: ...

    @abstractmethod
    async def _reached(self, move: Move, before: Phase) -> None:
        """The move has advanced from the phase ``before``; its instructions are not carried out yet."""

    @abstractmethod
    async def _ended(self, move: Move) -> None:
        """The move is over."""

    async def _steps(self, move: Move, event: Event) -> tuple[Move, Event]:
        """Carry out steps until the move is over or a process that it needs is unreachable."""
        try:
            while True:
                before = move.phase
                move, instructions = advance(move, event)
                await self._reached(move, before)
                for instruction in instructions:
                    event = await self._perform(move, instruction)
                if move.phase.over:
                    await self._ended(move)
                    return move, event
                if not isinstance(event, Succeeded) and move.phase in (Phase.ROLLING_BACK, Phase.ACTIVATING):
                    return move, event
        except (BadInput, nats.errors.Error, OSError, TimeoutError) as error:  # the hub's store does not answer
            log.warning("move %s: %r", move, error)
            return move, Restarted()

    async def _perform(self, move: Move, instruction: Instruction) -> Event:
        match instruction:
            case Prepare():
                return await self._prepare(move)
            case HandOver():
                return await self._hand_over(move)
            case Switch(to):
                return await self._switch(move, to)
            case Activate():
                return await self._activate(move)
            case Drain():
                return await self._order(move.source, DrainLinks(move.key, DRAIN_S), DRAIN_S + 5, SourceSilent())
            case Retire():
                if move.whole:
                    await self._order(move.source, RetireTopic(move.topic, move.target), PREPARE_S, SourceSilent())
                return Succeeded()
            case Undo():
                if move.whole:  # first, so that two processors never run at once
                    await self._order(move.target, RetireTopic(move.topic, move.target), PREPARE_S, TargetLost())
                if move.stateful:
                    undone = await self._order(move.source, ResumeTopic(move.topic), HAND_OVER_S, SourceSilent())
                    if not isinstance(undone, Succeeded):
                        return undone
                return await self._switch(move, move.source)
