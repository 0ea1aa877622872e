"""Executes moves: performs what the state machine of ``migrate.move`` orders, and records every step.

Each move is a task; at most ``executors`` run at once. The record in the key-value store is written before an
instruction is carried out, so an executor that dies finds out on its return how far each move had come.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.errors import BadInput, UnknownName, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.protocol import wire
from trimtab.migrate.drain import spread
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
    SourceLost,
    Started,
    Succeeded,
    Switch,
    TargetLost,
    Undo,
    advance,
)

if TYPE_CHECKING:
    from nats.js.kv import KeyValue

    from trimtab.fleet.hub.keeper import Keeper

log = logging.getLogger("trimtab.mover")
PREPARE_S: Final = 15.0
COPY_S: Final = 600.0  # stored messages may take their time; nobody waits for them
HAND_OVER_S: Final = 15.0
DRAIN_S: Final = 10.0
AGAIN_S: Final = 0.5  # between attempts of what must succeed in the end
LOOK_S: Final = 0.2  # between looks whether a broker is still there
HISTORY: Final = 10_000  # records kept


class Mover:
    """The executor. ``keeper`` gives it the connection and the registry."""

    def __init__(self, keeper: Keeper, executors: int) -> None:
        self._keeper = keeper
        self._turn = asyncio.Semaphore(executors)
        self._records: dict[str, dict[str, Any]] = {}  # id -> move, phases with times; in order of start
        self._moves: dict[tuple[str, str, str], Move] = {}  # under way, by what moves
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._released: dict[str, Any] = {}  # id -> what the source said on handing over
        self._ids = itertools.count()
        self._began = f"{time.time_ns() // 1_000_000:x}"
        self._bucket: KeyValue | None = None

    # What is asked for.

    def plan(self, unit: str, topic: str, client: str, target: str) -> Move:
        """A move that makes sense now, or a refusal that says why not."""
        registry = self._keeper.registry
        identity = f"{self._began}-{next(self._ids)}"
        if unit == "topic":
            record = registry.topic(topic)
            if record.unit != "topic":
                raise BadInput(f"topic '{topic}' is placed by {record.unit}; move its {record.unit}s instead")
            move = Move(identity, "topic", topic, "", record.broker, target, record.stateful, record.persistent)
        elif unit == "client":
            home = registry.home(client)
            if home is None:
                raise UnknownName("client", client, sorted(registry.of_kind("client")))
            move = Move(identity, "client", "", client, home, target)
        else:
            record = registry.topic(topic)
            if record.unit != "link":
                raise BadInput(f"topic '{topic}' is placed by {record.unit}; move the {record.unit} instead of a link")
            move = Move(identity, "link", topic, client, registry.route(client, topic), target)
        if move.source == target:
            raise BadInput(f"{move.unit} '{topic or client}' is at '{target}' already")
        if move.what in self._moves:
            raise BadInput(f"{move.unit} '{topic or client}' is moving already; wait until that is over")
        if move.stateful and move.source not in self._keeper.alive():
            raise Unreachable(f"topic '{topic}' cannot move: what it has is at '{move.source}', which does not answer")
        self._moves[move.what] = move  # from now on it is moving, though it has not begun
        return move

    def forget(self, planned: list[Move]) -> None:
        """These are not started after all."""
        for move in planned:
            self._moves.pop(move.what, None)

    def plan_drain(self, leaving: str, alive: list[str]) -> list[Move]:
        registry = self._keeper.registry
        topics = {t.name: t.broker for t in registry.topics() if t.unit == "topic"}
        clients = {name: value["home"] for name, value in registry.of_kind("client").items()}
        links = {name: value["broker"] for name, value in registry.of_kind("link").items()}
        planned: list[Move] = []
        if leaving not in alive:
            raise Unreachable(f"broker '{leaving}' does not answer, so nothing can be taken off it")
        for unit, where in (("topic", topics), ("client", clients), ("link", links)):
            carried = {broker: sum(at == broker for at in where.values()) for broker in alive}
            leave = [name for name, at in where.items() if at == leaving and not self.moving(unit, *_parts(unit, name))]
            for name, target in spread(leave, carried, leaving).items():
                planned.append(self.plan(unit, *_parts(unit, name), target))
        return planned

    def moving(self, unit: str, topic: str, client: str) -> bool:
        return (unit, topic, client) in self._moves

    def topics(self) -> list[str]:
        """Topics in a move."""
        return [move.topic for move in self._moves.values() if move.unit == "topic"]

    async def start(self, move: Move) -> str:
        self._moves[move.what] = move
        try:
            await self._record(move)
        except BaseException:  # the hub does not answer; nobody must wait for a move that never begins
            self._moves.pop(move.what, None)
            raise
        self._tasks[move.id] = asyncio.create_task(self._run(move, Started()), name=f"move {move.id}")
        return move.id

    @property
    def under_way(self) -> int:
        return len(self._moves)

    def records(self, ids: list[str]) -> list[dict[str, Any]]:
        return [self._records[each] for each in ids if each in self._records]

    def newest(self, most: int) -> list[dict[str, Any]]:
        return list(self._records.values())[-most:]

    async def load(self, bucket: KeyValue) -> None:
        """What an earlier executor left."""
        self._bucket = bucket
        found = []
        for key in await self._keeper._keys(bucket):
            entry = await bucket.get(key)
            found.append(json.loads(entry.value or b"{}"))
        for record in sorted(found, key=lambda r: r["phases"][0][1])[-HISTORY:]:
            self._records[record["id"]] = record
            fields = {name: record[name] for name in Move.__slots__ if name != "phase"}
            move = Move(**fields, phase=Phase(record["phase"]))
            if not move.phase.over:
                self._moves[move.what] = move

    def resume(self) -> None:
        """Go on with it."""
        for move in self._moves.values():
            self._tasks[move.id] = asyncio.create_task(self._run(move, Restarted()), name=f"move {move.id}")
        if self._moves:
            log.info("resuming %d moves", len(self._moves))

    async def stop(self) -> None:
        await tasks.end(*self._tasks.values())

    # How it is done.

    async def _run(self, move: Move, event: Event) -> None:
        try:
            while not move.phase.over:
                async with self._turn:
                    move, event = await self._steps(move, event)
                if not move.phase.over:  # others may go first while this one waits for a part that is away
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._released.pop(move.id, None)
            self._tasks.pop(move.id, None)

    async def _steps(self, move: Move, event: Event) -> tuple[Move, Event]:
        """As far as it goes without waiting for a part that is away."""
        try:
            while True:
                before = move.phase
                move, instructions = advance(move, event)
                self._moves[move.what] = move
                if move.phase != before and not move.phase.over:
                    await self._record(move)
                for instruction in instructions:
                    event = await self._perform(move, instruction)
                if move.phase.over:  # and only now: who sees it may order the next move
                    self._moves.pop(move.what, None)
                    await self._record(move)
                    return move, event
                if not isinstance(event, Succeeded) and move.phase in (Phase.ROLLING_BACK, Phase.ACTIVATING):
                    return move, event
        except (BadInput, nats.errors.Error, OSError, TimeoutError) as error:  # the hub's store is away for a moment
            log.warning("move %s: %r", move, error)
            return move, Restarted()

    async def _perform(self, move: Move, instruction: Instruction) -> Event:
        about: dict[str, Any] = {
            "id": move.id,
            "topic": move.topic,
            "client": move.client,
            "source": move.source,
            "target": move.target,
        }
        match instruction:
            case Prepare():
                if move.unit != "topic":
                    return await self._order(move.target, "welcome", {}, PREPARE_S, TargetLost())
                record = self._keeper.registry.get(f"topic.{move.topic}")
                limit = COPY_S if move.durable else PREPARE_S
                return await self._order(move.target, "prepare", about | {"record": record}, limit, TargetLost())
            case HandOver():
                return await self._order(move.source, "release", about, HAND_OVER_S, SourceLost(), self._released)
            case Switch(to):
                return await self._switch(move, to)
            case Activate():
                about["closed"] = self._released.get(move.id)
                return await self._order(move.target, "activate", about, HAND_OVER_S, TargetLost())
            case Drain():
                return await self._order(move.source, "drain", about | {"wait_s": DRAIN_S}, DRAIN_S + 5, SourceLost())
            case Retire():
                if move.unit == "topic":
                    await self._order(move.source, "retire", about, PREPARE_S, SourceLost())
                return Succeeded()
            case Undo():
                if move.unit == "topic":  # first, so that two processors never run at once
                    await self._order(move.target, "retire", about, PREPARE_S, TargetLost())
                if move.stateful:
                    undone = await self._order(move.source, "resume", about, HAND_OVER_S, SourceLost())
                    if not isinstance(undone, Succeeded):
                        return undone
                return await self._switch(move, move.source)

    async def _order(
        self, broker: str, verb: str, question: dict[str, Any], limit_s: float, lost: Event,
        answers: dict[str, Any] | None = None,
    ) -> Event:  # fmt: skip
        asking = asyncio.create_task(wire.ask(self._keeper.connection, f"ask.{broker}.{verb}", question, limit_s))
        watching = asyncio.create_task(self._gone(broker))
        try:
            await asyncio.wait((asking, watching), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                return lost
            answer = asking.result()
            if answers is not None:
                answers[question["id"]] = answer
        except Unreachable:
            return lost
        except BadInput as error:
            return Refused(str(error))
        finally:
            await tasks.end(asking, watching)
        return Succeeded()

    async def _gone(self, broker: str) -> None:
        """Until the agent that was asked can no longer answer: it is away, or it is another one."""
        keeper = self._keeper
        while broker not in keeper.runs and not keeper.presence.sure:
            await asyncio.sleep(LOOK_S)  # this keeper has just started, and nobody has had the time to call
        run = keeper.runs.get(broker)
        while broker in keeper.alive() and keeper.runs.get(broker) == run:
            await asyncio.sleep(LOOK_S)

    async def _switch(self, move: Move, to: str) -> Event:
        registry = self._keeper.registry
        if move.unit == "topic":
            key = f"topic.{move.topic}"
        elif move.unit == "client":
            key = f"client.{move.client}"
        else:
            key = f"link.{move.client}.{move.topic}"
        value = registry.get(key)
        if value is None and to == move.source:
            return Succeeded()
        if value is None:
            return Refused(f"{move.unit} '{move.topic or move.client}' was deleted meanwhile")
        field = "home" if move.unit == "client" else "broker"
        if value[field] != to:
            try:
                await self._keeper.write(key, lambda now: now | {field: to} if now else None)
            except BadInput as error:
                return Refused(str(error))
        return Succeeded()

    async def _record(self, move: Move) -> None:
        known = self._records.get(move.id, {"phases": []})
        record = asdict(move) | {"phases": [*known["phases"], [str(move.phase), time.time()]]}
        self._records[move.id] = record
        if len(self._records) > HISTORY:
            oldest = next(iter(self._records))
            del self._records[oldest]
            if self._bucket is not None:
                await self._bucket.purge(oldest)
        if self._bucket is not None:
            await self._bucket.put(move.id, json.dumps(record).encode())


def _parts(unit: str, name: str) -> tuple[str, str]:
    """Topic and client of a registry's entry."""
    if unit == "link":
        client, _, topic = name.partition(".")
        return topic, client
    return (name, "") if unit == "topic" else ("", name)
