"""What executors of moves share: the steps of a move, and the orders that carry out its instructions.

The keeper executes moves with the registry of the hub (``hub.mover``). While the hub is away, the host of a topic
executes the move of this topic itself (``broker.peer_moves``).
"""

from __future__ import annotations

import asyncio
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
    Refused,
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
    from trimtab.model.key import Key

log = logging.getLogger("trimtab.mover")
PREPARE_S: Final = 15.0
COPY_S: Final = 600.0  # long, because the topic stays in service while its stored messages are copied
HAND_OVER_S: Final = 15.0
DRAIN_S: Final = 10.0
AGAIN_S: Final = 0.5  # pause before a step that must succeed is tried again
FAULTS: Final = 3  # unexpected exceptions after which a move ends where it is


class MoveExecutor(ABC):
    """Executes moves, at most ``executors`` at once.

    A subclass knows how to reach the brokers, and how to change the registry.
    """

    def __init__(self, executors: int) -> None:
        self._turn = asyncio.Semaphore(executors)
        self._moves: dict[Key, Move] = {}  # under way

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
    async def _record(self, move: Move) -> None:
        """The move has reached its phase; the instructions are not carried out yet."""

    @abstractmethod
    async def _given_up(self, move: Move, reason: str) -> bool:
        """End a move that fails again and again; False if it must go on."""

    async def _run(self, move: Move, event: Event) -> None:
        faults = 0
        while not move.phase.over:
            try:
                async with self._turn:
                    move, event = await self._steps(move, event)
            except Exception as error:  # a fault of this process
                log.exception("move %s failed while %s", move, move.phase)
                faults += 1
                current = self._moves.get(move.key)
                if current is None or current.id != move.id:
                    return  # the move was over
                move = current
                event = Refused(f"it failed while {move.phase}: {type(error).__name__} {error}")
                if (move.phase.over or faults >= FAULTS) and await self._given_up(move, event.reason):
                    return
            if not move.phase.over:  # gives its turn to other moves while a process is unreachable
                await asyncio.sleep(AGAIN_S)

    async def _steps(self, move: Move, event: Event) -> tuple[Move, Event]:
        """Carry out steps until the move is over or a process that it needs is unreachable."""
        try:
            while True:
                before = move.phase
                move, instructions = advance(move, event)
                self._moves[move.key] = move
                if move.phase != before and not move.phase.over:
                    await self._record(move)
                for instruction in instructions:
                    event = await self._perform(move, instruction)
                if move.phase.over:  # recorded last, because an observer may then order the next move
                    self._moves.pop(move.key, None)
                    await self._record(move)
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
                    retire = RetireTopic(move.topic, move.target, move.id)
                    await self._order(move.source, retire, PREPARE_S, SourceSilent())
                return Succeeded()
            case Undo():
                if move.whole:  # first, so that two processors never run at once
                    retire = RetireTopic(move.topic, move.target, move.id)
                    await self._order(move.target, retire, PREPARE_S, TargetLost())
                if move.stateful:
                    undone = await self._order(move.source, ResumeTopic(move.topic), HAND_OVER_S, SourceSilent())
                    if not isinstance(undone, Succeeded):
                        return undone
                return await self._switch(move, move.source)
