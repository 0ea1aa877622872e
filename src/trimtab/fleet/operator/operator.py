"""Requests of people and programs to a running fleet, and procedures that take more than one request."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from trimtab.errors import BadInput, NoAnswer, NotStartedHere, UnknownName, Unreachable
from trimtab.fleet.operator import tables
from trimtab.fleet.operator.decision_log import DecisionLog
from trimtab.fleet.operator.measurements import newest_snapshot, reading
from trimtab.fleet.operator.rtt import Rtt, find_rtt
from trimtab.fleet.operator.state import FleetState
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import (
    AddBroker,
    ApplyMoves,
    CordonBroker,
    DrainBroker,
    EmptyBroker,
    ForgetBroker,
    GetStatus,
    ListBrokers,
    ListChannels,
    ListClients,
    ListCordons,
    ListLinks,
    ListMoves,
    ListTopics,
    Pause,
    PlaceLinks,
    Rebalance,
    RemoveBroker,
    Resume,
    RollBack,
    SetTopic,
    StartMoves,
    StopPlan,
    UncordonBroker,
)
from trimtab.fleet.protocol.plans import FAILED, LINKS_PLACED, MOVED, MOVING
from trimtab.fleet.site.credentials import FLEET_FILE, Fleet
from trimtab.fleet.site.launch import admin_connection
from trimtab.migrate.move import Phase
from trimtab.model.key import counted

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence
    from pathlib import Path

    from nats.aio.client import Client as Nats

    from trimtab.fleet.operator.placement import Changes
    from trimtab.fleet.operator.tables import BrokerRow, ChannelRow, ClientRow, LinkRow, MoveRow, Overview, TopicRow
    from trimtab.fleet.protocol.admin_verbs import Begun, ControllerStatus, MoveOrder, PlacedLink, PlanReply, Stopped
    from trimtab.fleet.protocol.entries import MoveRecord
    from trimtab.fleet.protocol.plans import Decision, Outcome, Plan
    from trimtab.fleet.protocol.request import AdminRequest, Request
    from trimtab.model.key import Key
    from trimtab.observe.snapshot import Snapshot

    R = TypeVar("R")
    Progress = Callable[[int, int], None]  # called with the number of steps that are over and of all steps

ASK_S: Final = 10.0
LOOK_S: Final = 0.2  # interval of the check of a plan
MOVES_LOOK_S: Final = 0.02  # interval of the check of moves, which take some milliseconds
LEADER_S: Final = 10.0  # limit until another controller leads, or another keeper answers
NOBODY_LEADS_S: Final = 3.0  # limit until a standby leads; longer than a lease is valid
BROKER_S: Final = 40.0  # limit of starting or ending a broker
LISTED: Final = 200  # moves in one request
LINKS: Final = 200  # links in one request
LINKS_S: Final = 30.0
MISSING: Final = {  # start of a verb -> error message if no process answers it
    "control.": "no controller answers: is one running? (trimtab controller)",
    "add_broker": "no process answers that could start a broker: trimtab up does; elsewhere, use trimtab broker --join",
}


def _ignore(over: int, of: int) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Removal:
    """The outcome of the removal of a broker."""

    ended: bool  # False: the broker is empty, but was started by another process, which must end it
    moved: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True)
class Applied:
    """How a placement was applied, or would be."""

    by: str  # "controller" or "keeper"
    plan: Plan | None = None  # the controller's plan
    states: tuple[str, ...] = ()  # one per step


class Operator:
    """``async with Operator.open(home) as operator``, or over a connection that the caller closes."""

    def __init__(self, connection: Nats) -> None:
        self.connection = connection
        self._log = DecisionLog(connection)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, home: Path) -> AsyncIterator[Operator]:
        """Connect to the fleet of this folder."""
        connection = await admin_connection(Fleet.load(home / FLEET_FILE))
        try:
            yield cls(connection)
        finally:
            await wire.close(connection)

    async def ask(self, request: Request[R], wait_s: float = ASK_S, *, broker: str = "") -> R:
        """Send a request and return the reply; requests to an agent need its ``broker``."""
        try:
            return await wire.ask(self.connection, request, wait_s, broker=broker)
        except NoAnswer as error:
            hint = next((text for verb, text in MISSING.items() if request.verb.startswith(verb)), "")
            if not hint or error.changed:
                raise
            raise NoAnswer(hint) from None

    # Tables.

    async def state(self) -> FleetState:
        return await FleetState.ask(self.connection)

    async def brokers(self) -> list[BrokerRow]:
        brokers, cordons = await self.ask(ListBrokers(reports=True)), await self.ask(ListCordons())
        return tables.broker_rows(brokers, cordons.entries)

    async def topics(self) -> list[TopicRow]:
        topics = await self.ask(ListTopics(reports=True))
        return tables.topic_rows(topics, topics.reports)

    async def clients(self) -> list[ClientRow]:
        return tables.client_rows((await self.ask(ListClients())).entries)

    async def links(self) -> list[LinkRow]:
        return tables.link_rows((await self.ask(ListLinks())).entries)

    async def channels(self) -> list[ChannelRow]:
        return tables.channel_rows((await self.ask(ListChannels())).entries)

    async def moves(self, most: int = 100) -> list[MoveRow]:
        """The newest moves, the newest last."""
        return [tables.move_row(record) for record in (await self.ask(ListMoves(most=most))).moves]

    async def moves_under_way(self) -> int:
        return (await self.ask(ListMoves(most=1))).under_way

    async def rtt(self, one: str, other: str) -> Rtt:
        """The round-trip time between two brokers or clients."""
        return await find_rtt(self.connection, one, other)

    async def overview(self, moves: int = 5) -> Overview:
        brokers, cordons = await self.ask(ListBrokers(reports=True)), await self.ask(ListCordons())
        topics = tables.topic_rows(await self.ask(ListTopics()), brokers.reports)
        return tables.Overview(tables.broker_rows(brokers, cordons.entries), topics, await self.moves(moves))

    async def alive(self) -> list[str]:
        return (await self.ask(ListBrokers())).alive

    async def snapshot(self) -> Snapshot | None:
        """The newest measurement, if there is any."""
        with reading():
            newest = await newest_snapshot(self.connection)
        return newest[1] if newest else None

    # The controller.

    async def status(self, wait_s: float = ASK_S) -> ControllerStatus:
        return await self.ask(GetStatus(), wait_s)

    async def controller_leads(self) -> bool:
        """Whether a controller answers. Waits for a standby that may be taking over."""
        deadline = asyncio.get_running_loop().time() + NOBODY_LEADS_S
        while True:
            try:
                await self.status(2.0)
            except Unreachable:
                if asyncio.get_running_loop().time() > deadline:
                    return False
                await asyncio.sleep(LOOK_S)
            else:
                return True

    async def decisions(self, most: int = 20) -> list[Decision]:
        """The newest decisions with their outcomes, the newest last."""
        with reading():
            return await self._log.newest(most)

    async def decision(self, number: int) -> Decision:
        with reading():
            return await self._log.decision(number)

    async def find_decision(self, name: str) -> tuple[Decision, int | None]:
        """The decision of a number; or the newest one about a topic, client, link ("TOPIC CLIENT") or move, and the
        row of its step."""
        with reading():
            return await self._log.find(name)

    async def pause(self, reason: str = "") -> str:
        return (await self.ask(Pause(reason))).paused

    async def resume(self) -> None:
        await self.ask(Resume())

    async def rebalance(
        self, *, apply: bool = False, policy: str | None = None, budget: float | None = None, reason: str = "",
        knobs: dict[str, Any] | None = None,
    ) -> PlanReply:  # fmt: skip
        """Plan now. With ``apply`` the plan is begun; ``follow`` waits for its end."""
        return await self.ask(Rebalance(apply, policy, budget, reason, knobs))

    async def stop(self, reason: str = "") -> Stopped:
        return await self.ask(StopPlan(reason))

    async def roll_back(self, plan: int | None = None, reason: str = "") -> PlanReply:
        return await self.ask(RollBack(plan, reason))

    async def follow(self, number: int, progress: Progress = _ignore) -> Outcome:
        """Wait until a plan is over. Controllers may take turns meanwhile, and a plan may be replaced."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LEADER_S
        while True:
            outcome = None
            try:
                current = (await self.status()).progress
                if current is None or current.plan.number != number:
                    outcome = (await self.decision(number)).outcome
                    # A plan that was replaced has moves under way until the controller has seen their end.
                    if outcome is not None and MOVING not in outcome.states and outcome.ended is not None:
                        return outcome
                else:
                    deadline = loop.time() + LEADER_S
                    progress(current.finished, len(current.states))
            except Unreachable:
                if loop.time() > deadline:
                    raise
            if loop.time() > deadline:
                if outcome is not None and outcome.states:
                    return outcome
                raise NoAnswer(f"the outcome of plan {number} is not known: trimtab why {number}", changed=True)
            await asyncio.sleep(LOOK_S)

    # Moves.

    async def start_moves(self, orders: Iterable[MoveOrder]) -> list[str]:
        """Start moves and return their ids. All are checked before any starts."""
        listed = list(orders)
        return (await self.ask(StartMoves(listed), ASK_S + len(listed) / 100.0)).moves if listed else []

    async def finished(
        self, ids: Sequence[str], progress: Progress = _ignore, limit_s: float | None = None
    ) -> list[MoveRecord]:
        """Wait until all moves are over, and return their records. The keeper may be restarted meanwhile.

        Raises ``Unreachable`` if the hub has lost the record of a move, so that its outcome is unknown.
        """
        loop = asyncio.get_running_loop()
        began = answered = loop.time()
        wanted = list(dict.fromkeys(ids))
        over: dict[str, MoveRecord] = {}
        lost: set[str] = set()
        while True:
            left = [identity for identity in wanted if identity not in over and identity not in lost]
            try:
                for at in range(0, len(left), LISTED):
                    some = left[at : at + LISTED]
                    records = {record.id: record for record in (await self.ask(ListMoves(some))).moves}
                    lost |= {identity for identity in some if identity not in records}
                    over |= {name: record for name, record in records.items() if Phase(record.phase).over}
                answered = loop.time()
            except Unreachable:
                if loop.time() > answered + LEADER_S:
                    raise
            progress(len(over) + len(lost), len(wanted))
            if len(over) + len(lost) == len(wanted):
                break
            if limit_s is not None and loop.time() > began + limit_s:
                raise TimeoutError(f"{len(ids)} moves are not all over after {limit_s:g} s")
            await asyncio.sleep(MOVES_LOOK_S)
        if lost:
            raise Unreachable(
                f"the hub has lost the records of {len(lost):,} of {len(wanted):,} moves, such as {min(lost)}; "
                "see trimtab topics and trimtab clients for their brokers", changed=True,
            )  # fmt: skip
        return [over[identity] for identity in ids]

    async def move(self, orders: Iterable[MoveOrder], progress: Progress = _ignore) -> list[MoveRow]:
        """Start moves and wait for their end."""
        return await self._carry_out(StartMoves(list(orders)), progress)

    async def drain(self, broker: str, reason: str = "", progress: Progress = _ignore) -> list[MoveRow]:
        """Cordon a broker, move all keys off it and wait for the end of the moves."""
        return await self._carry_out(DrainBroker(broker, reason), progress)

    async def _carry_out(self, order: AdminRequest[Begun], progress: Progress) -> list[MoveRow]:
        ids = (await self.ask(order)).moves
        return [tables.move_row(record) for record in await self.finished(ids, progress)]

    async def set_topic(self, name: str, latency_ms: float | None) -> None:
        await self.ask(SetTopic(name, latency_ms))

    async def place_links(self, links: Sequence[PlacedLink]) -> None:
        """Admit links, or refuse those without a broker."""
        for at in range(0, len(links), LINKS):
            await self.ask(PlaceLinks(list(links[at : at + LINKS])), LINKS_S)

    # Placements.

    async def preview(self, changes: Changes, reason: str = "") -> Applied:
        """Which process would carry out the changes, and the controller's prediction. Nothing changes."""
        if not changes.any or not await self.controller_leads():
            return Applied("keeper")
        return Applied("controller", (await self.ask(ApplyMoves(changes.orders, False, reason, changes.links))).plan)

    async def apply(self, changes: Changes, reason: str = "", progress: Progress = _ignore) -> Applied:
        """Carry out the changes: first the moves, since they may be refused; then links are refused and admitted."""
        if changes.any and await self.controller_leads():
            reply = await self.ask(ApplyMoves(changes.orders, True, reason, changes.links))
            if not reply.applied or reply.plan is None:
                return Applied("controller", reply.plan)
            outcome = await self.follow(reply.plan.number, progress)
            if changes.links and outcome.links != LINKS_PLACED:
                reason = outcome.links or "the plan was replaced"
                raise Unreachable(f"the links were not placed: {reason}", changed=True)
            return Applied("controller", reply.plan, tuple(outcome.states))
        records = await self.finished(await self.start_moves(changes.orders), progress)
        done = {record.key: MOVED if record.phase == Phase.DONE else FAILED for record in records}
        await self.place_links(changes.links)
        return Applied("keeper", None, tuple(done[step.key] for step in changes.steps))

    # Brokers.

    async def cordon(self, broker: str, reason: str = "") -> None:
        await self.ask(CordonBroker(broker, reason))

    async def uncordon(self, broker: str) -> None:
        await self.ask(UncordonBroker(broker))

    async def add_broker(self, name: str, stores: int = 1) -> list[str]:
        """Have the process that started the fleet start a broker, and return its addresses."""
        return (await self.ask(AddBroker(name, stores), BROKER_S)).urls

    async def remove_broker(self, name: str, reason: str = "", progress: Progress = _ignore) -> Removal:
        """Move all keys off a broker, end it and forget it. A broker that is not alive is only forgotten."""
        brokers = await self.ask(ListBrokers())
        if name not in brokers.entries:
            raise UnknownName("broker", name, sorted(brokers.entries))
        alive = name in brokers.alive
        moved = await self._empty(name, reason, progress) if alive else []
        if not alive:
            await self._refuse_if_in_use(name)
        ended = await self._end_broker(name)
        if not ended and not alive:
            await self.ask(ForgetBroker(name))
            ended = True
        return Removal(ended, tuple(moved))

    async def _empty(self, name: str, reason: str, progress: Progress) -> list[Key]:
        """Empty a broker: by the controller's plan, then by a drain of the remaining keys. Returns the moved keys."""
        reply, moved = await self.ask(EmptyBroker(name, reason)), []
        if reply.applied and reply.plan is not None:
            states = (await self.follow(reply.plan.number, progress)).states
            moved = [step.key for step, state in zip(reply.plan.steps, states, strict=False) if state == MOVED]
            if name not in (await self.status()).leaving:
                raise BadInput(f"the removal was stopped; broker '{name}' stays")
        late = await self.drain(name, reason or "to be removed", progress)  # keys that were placed there meanwhile
        if stuck := [row for row in late if row.phase == Phase.ROLLED_BACK]:
            left = counted(row.key for row in stuck)
            raise BadInput(f"{left} cannot leave '{name}', which stays: {stuck[0].reason}")
        return [*moved, *(row.key for row in late)]

    async def _refuse_if_in_use(self, name: str) -> None:
        """A broker that is not alive may be forgotten only if no key is placed there."""
        state = await self.state()
        left = sorted(key for key, broker in state.routing().brokers.items() if broker == name)
        if not left:
            return
        key = left[0]
        names = f"{key.client} {key.topic}" if key.unit == "link" else key.name
        way = f"trimtab move {key.unit} {names} --to BROKER, or trimtab controller"
        raise BadInput(f"'{name}' is away and has {counted(left)} still, such as '{key.name}': {way}")

    async def _end_broker(self, name: str) -> bool:
        """Have the process that started the broker end it. Returns False if no such process answers."""
        try:
            await self.ask(RemoveBroker(name), BROKER_S)
        except (NoAnswer, NotStartedHere):
            return False
        return True
