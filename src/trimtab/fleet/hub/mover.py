"""Executes moves: carries out the instructions of the state machine of ``migrate.move``, and records every step.

Each move is a task; at most ``executors`` run at once. The record in the key-value store is written before an
instruction is carried out. So a restarted executor knows the phase of each move.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

import nats.errors

from trimtab.errors import AlreadyThere, BadInput, Moving, NoAnswer, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.hub.presence import ALIVE_S, TICK_S
from trimtab.fleet.protocol import coding, wire
from trimtab.fleet.protocol.agent_verbs import ActivateTopic, PrepareTopic, Released, ReleaseTopic, WelcomeClient
from trimtab.fleet.protocol.entries import MoveRecord, Topic
from trimtab.fleet.protocol.move_executor import COPY_S, HAND_OVER_S, PREPARE_S, MoveExecutor
from trimtab.fleet.protocol.registry import entry_name
from trimtab.migrate.drain import spread
from trimtab.migrate.move import (
    Event,
    Move,
    Phase,
    Refused,
    Restarted,
    SourceLost,
    SourceSilent,
    Started,
    Succeeded,
    TargetLost,
)
from trimtab.model.key import UNITS

if TYPE_CHECKING:
    from nats.js.kv import KeyValue

    from trimtab.fleet.hub.keeper import Keeper
    from trimtab.fleet.protocol.agent_verbs import Closed
    from trimtab.fleet.protocol.request import AgentRequest
    from trimtab.model.key import Key

    R = TypeVar("R")

log = logging.getLogger("trimtab.mover")
LOOK_S: Final = 0.2  # interval of the check whether a broker is alive
HISTORY: Final = 10_000  # records kept, besides those of unfinished moves
KEPT_S: Final = 60.0  # the record of a finished move is kept at least this long, for the process that ordered it


class Mover(MoveExecutor):
    """The executor of moves, with the connection and the registry of ``keeper``."""

    def __init__(self, keeper: Keeper, executors: int) -> None:
        super().__init__(executors)
        self._keeper = keeper
        self._records: dict[str, MoveRecord] = {}  # by id, in order of start
        self._finished: dict[str, float] = {}  # id -> time of the end, in order of the ends
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._released: dict[str, Closed | None] = {}  # id -> last message and readers of the source's closed stream
        self._ids = itertools.count()
        self._began = f"{time.time_ns() // 1_000_000:x}"
        self._bucket: KeyValue | None = None

    # Planning and records.

    def plan(self, key: Key, target: str) -> Move:
        """Plan a move of a key and reserve the key; refused, with the reason, if the move is not possible now."""
        registry = self._keeper.registry
        source = registry.check(key)
        topic = registry.topic(key.topic) if key.topic else None
        stateful, durable = topic is not None and topic.stateful, topic is not None and topic.persistent
        takeover = stateful and not durable and source not in self._keeper.alive()  # its state was lost with the source
        move = Move(self._new_id(), key, source, target, stateful and not takeover, durable, takeover)
        if source == target:
            raise AlreadyThere(f"{key.unit} '{key.name}' is at '{target}' already", target)
        if key in self._moves:
            raise Moving(f"{key.unit} '{key.name}' is moving already; wait until that is over")
        if move.stateful and source not in self._keeper.alive():
            raise Unreachable(f"topic '{key.topic}' waits for '{source}', where its messages are stored")
        self._moves[key] = move  # the key counts as moving before the move starts
        return move

    def _new_id(self) -> str:
        return f"{self._began}-{next(self._ids)}"

    def forget(self, planned: list[Move]) -> None:
        """Release the keys of planned moves that are not started."""
        for move in planned:
            self._moves.pop(move.key, None)

    def plan_drain(self, leaving: str) -> list[Move]:
        """Plan moves of all keys from a broker to the open brokers."""
        alive = self._keeper.alive()
        if leaving not in alive:
            raise Unreachable(f"broker '{leaving}' does not answer, so nothing can be taken off it")
        alive = [leaving, *self._keeper.open_brokers(besides=leaving)]
        planned: list[Move] = []
        where = self._keeper.registry.table().brokers
        try:
            for unit in UNITS:
                of_unit = {key: broker for key, broker in where.items() if key.unit == unit}
                carried = {broker: sum(at == broker for at in of_unit.values()) for broker in alive}
                leave = [key for key, at in of_unit.items() if at == leaving and key not in self._moves]
                for key, target in spread(leave, carried, leaving).items():
                    planned.append(self.plan(key, target))
        except BaseException:
            self.forget(planned)
            raise
        return planned

    def moving(self, key: Key) -> bool:
        return key in self._moves

    def topics(self) -> list[str]:
        """Topics in a move."""
        return [move.topic for move in self._moves.values() if move.whole]

    async def start(self, move: Move) -> str:
        self._moves[move.key] = move
        try:
            await self._record(move)
        except BaseException:  # the hub's store does not answer, and the move never starts
            self._moves.pop(move.key, None)
            raise
        self._tasks[move.id] = asyncio.create_task(self._executed(move, Started()), name=f"move {move.id}")
        return move.id

    @property
    def under_way(self) -> int:
        return len(self._moves)

    def records(self, ids: list[str]) -> list[MoveRecord]:
        return [self._records[identity] for identity in ids if identity in self._records]

    def newest(self, most: int) -> list[MoveRecord]:
        return list(self._records.values())[-most:]

    async def adopt(self, key: Key, topic: Topic, revision: int, reason: str) -> bool:
        """Take over a topic's placement by its brokers, unless the topic moves, or has changed after ``revision``."""
        registry = self._keeper.registry
        source, name = registry.broker_of(key), entry_name(key)
        if key in self._moves:
            return False
        move = Move(
            self._new_id(), key, source, topic.broker, topic.stateful, interim=True, phase=Phase.DONE, reason=reason
        )

        def placed(now: Topic | None) -> Topic:
            if now is None or registry.at(name) != revision:
                raise BadInput(f"topic '{key.topic}' has changed meanwhile")
            return now.placed_at(topic.broker)

        self._moves[key] = move
        try:
            await self._keeper.write(name, placed)
        finally:
            self._moves.pop(key, None)
        await self._record(move)
        return True

    async def load(self, bucket: KeyValue) -> None:
        """Load the records of an earlier executor."""
        self._bucket = bucket
        records = []
        for key in await self._keeper.keys(bucket):
            entry = await bucket.get(key)
            records.append(coding.decode(entry.value or b"", MoveRecord))
        for record in sorted(records, key=lambda record: record.phases[0][1]):
            self._records[record.id] = record
            move = Move(
                record.id, record.key, record.source, record.target, record.stateful, record.durable,
                record.takeover, Phase(record.phase), record.reason,
            )  # fmt: skip
            if not move.phase.over:
                self._moves[move.key] = move
        ends = sorted((record.phases[-1][1], record.id) for record in records if Phase(record.phase).over)
        self._finished = {identity: at for at, identity in ends}
        await self._drop_old_records()

    def resume(self) -> None:
        """Continue the unfinished moves of an earlier executor."""
        for move in self._moves.values():
            self._tasks[move.id] = asyncio.create_task(self._executed(move, Restarted()), name=f"move {move.id}")
        if self._moves:
            log.info("resuming %d moves", len(self._moves))

    async def stop(self) -> None:
        await tasks.end(*self._tasks.values())

    # Execution.

    async def _executed(self, move: Move, event: Event) -> None:
        try:
            await self._run(move, event)
        finally:
            self._released.pop(move.id, None)
            self._tasks.pop(move.id, None)

    async def _given_up(self, move: Move, reason: str) -> bool:
        """End a move that fails again and again. The agents bring themselves in line with the registry then.

        Not so while the target may lack stored messages: it would open its stream without them.
        """
        switched = self._keeper.registry.broker_of(move.key) == move.target
        if move.durable and switched and move.phase not in (Phase.DRAINING, Phase.DONE):
            return False
        self._moves.pop(move.key, None)
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            await self._record(replace(move, phase=Phase.DONE if switched else Phase.ROLLED_BACK, reason=reason))
        return True

    async def _prepare(self, move: Move) -> Event:
        topic = self._keeper.registry.find_topic(move.topic)
        if topic is None or not move.whole:
            return await self._order(move.target, WelcomeClient(), PREPARE_S, TargetLost())
        limit = COPY_S if move.durable else PREPARE_S
        return await self._order(move.target, PrepareTopic(move.id, topic, move.source), limit, TargetLost())

    async def _activate(self, move: Move) -> Event:
        order = ActivateTopic(move.topic, move.source, self._released.get(move.id))
        return await self._order(move.target, order, HAND_OVER_S, TargetLost())

    async def _hand_over(self, move: Move) -> Event:
        replies: list[Released] = []
        order = ReleaseTopic(move.id, move.topic, move.target)
        event = await self._order(move.source, order, HAND_OVER_S, SourceSilent(), replies)
        if replies:
            self._released[move.id] = replies[0].closed
        if isinstance(event, SourceSilent):  # a dead broker's requests fail before the broker counts as dead
            with contextlib.suppress(TimeoutError):
                await tasks.within(ALIVE_S + TICK_S, self._gone(move.source))
            return self._lost(move.source, event)
        return event

    async def _order(
        self, broker: str, order: AgentRequest[R], limit_s: float, lost: Event, replies: list[R] | None = None
    ) -> Event:
        """Send an order to a broker's agent and return the event. The reply is added to ``replies``.

        ``lost`` is the event of a broker that does not answer.
        """
        asking = asyncio.create_task(wire.ask(self._keeper.connection, order, limit_s, broker=broker))
        watching = asyncio.create_task(self._gone(broker))
        try:
            await asyncio.wait((asking, watching), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return self._lost(broker, lost)
            reply = asking.result()
            if replies is not None:
                replies.append(reply)
        except NoAnswer:
            return self._lost(broker, lost)
        except (BadInput, Unreachable) as error:
            return Refused(str(error))
        finally:
            await tasks.end(asking, watching)
        return Succeeded()

    def _lost(self, broker: str, event: Event) -> Event:
        return SourceLost() if isinstance(event, SourceSilent) and broker not in self._keeper.alive() else event

    async def _gone(self, broker: str) -> None:
        """Wait until the broker's current agent can no longer answer: the broker is dead, or its agent restarted."""
        keeper = self._keeper
        while broker not in keeper.runs and not keeper.presence.sure:
            await asyncio.sleep(LOOK_S)  # this keeper has just started, and agents have not synced yet
        run = keeper.runs.get(broker)
        while broker in keeper.alive() and keeper.runs.get(broker) == run:
            await asyncio.sleep(LOOK_S)

    async def _switch(self, move: Move, to: str) -> Event:
        entry = self._keeper.registry.placed(move.key)
        if entry is None and to == move.source:
            return Succeeded()
        if entry is None:
            return Refused(f"{move.unit} '{move.key.name}' was deleted meanwhile")
        if to == move.source and entry.broker != move.target:  # undone already, or placed by its brokers meanwhile
            return Succeeded()
        if not entry.broker:  # a link that a placement has refused stays refused
            return Refused(f"{move.key} was refused meanwhile")
        if entry.broker != to:
            try:
                await self._keeper.write(
                    entry_name(move.key), lambda now: now.placed_at(to) if now and now.broker else now
                )
            except (BadInput, Unreachable) as error:
                return Refused(str(error))
        return Succeeded()

    async def _record(self, move: Move) -> None:
        previous = self._records.get(move.id)
        phases = [*(previous.phases if previous else ()), (str(move.phase), time.time())]
        record = MoveRecord(
            move.id, move.unit, move.topic, move.client, move.source, move.target, move.stateful, move.durable,
            str(move.phase), move.reason, phases, move.takeover,
        )  # fmt: skip
        self._records[move.id] = record
        if move.phase.over:
            self._finished[move.id] = record.phases[-1][1]
        if self._bucket is not None:
            await self._bucket.put(move.id, coding.encode(record))
        await self._drop_old_records()

    async def _drop_old_records(self) -> None:
        while len(self._records) > HISTORY and self._finished:
            oldest, ended = next(iter(self._finished.items()))
            if time.time() - ended < KEPT_S:
                break
            del self._finished[oldest], self._records[oldest]
            if self._bucket is not None:
                with contextlib.suppress(nats.errors.Error, TimeoutError):  # the next keeper that loads it drops it
                    await self._bucket.purge(oldest)
