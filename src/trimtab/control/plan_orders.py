"""Carries out the steps of plans: begins their moves at the keeper, follows them, places links, records the end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import msgspec

from trimtab.errors import AlreadyThere, BadInput, Moving, NoAnswer, Unreachable
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ListMoves, MoveOrder, PlacedLink, PlaceLinks, StartMoves
from trimtab.fleet.protocol.plans import FAILED, LINKS_PLACED, MOVED, MOVING, WAITING, Outcome
from trimtab.migrate.move import Phase

if TYPE_CHECKING:
    from nats.aio.client import Client as Nats

    from trimtab.control.plan_runner import PlanRunner
    from trimtab.control.record import Record
    from trimtab.fleet.protocol.plans import Progress

OVER: Final = {str(phase) for phase in Phase if phase.over}
LINKS: Final = 200  # links in one request
LINKS_S: Final = 30.0
ASIDE: Final = "brokers report at once if a bound is still missed"  # why such a plan is not measured


class PlanOrders:
    """The orders of a leading controller to the keeper. ``runner`` learns of every step's state."""

    def __init__(self, connection: Nats, record: Record) -> None:
        self._connection = connection
        self._record = record

    async def begin(self, runner: PlanRunner, progress: Progress, rows: list[int]) -> None:
        """Begin these steps in one request; if that is refused, one by one, so that only the refused steps fail."""
        try:
            ids = await self._start(progress, rows)
        except NoAnswer:  # the keeper is being restarted
            raise
        except Moving:  # another order moves the key; the step is tried again when that move is over
            state, ids = WAITING, [""]
        except AlreadyThere:
            state, ids = MOVED, [""]
        except (BadInput, Unreachable):
            state, ids = FAILED, [""]
        else:
            state = MOVING
        if state != MOVING and len(rows) > 1:
            for row in rows:
                await self.begin(runner, progress, [row])
            return
        for row, move in zip(rows, ids, strict=True):
            if state != WAITING:
                progress.moves[row] = move
                runner.set_state(time.time(), row, state, progress)

    async def _start(self, progress: Progress, rows: list[int]) -> list[str]:
        steps = [progress.plan.steps[row] for row in rows]
        order = StartMoves([MoveOrder(step.key, step.target) for step in steps])
        return (await wire.ask(self._connection, order, 10.0)).moves

    async def place_links(self, progress: Progress) -> str:
        """Admit and refuse the links of a plan whose steps are over. Returns LINKS_PLACED, or why not."""
        links = [PlacedLink(link.client, link.topic, link.target) for link in progress.plan.links]
        if progress.stopped or not links:
            return progress.stopped if links else ""
        try:
            for at in range(0, len(links), LINKS):
                await wire.ask(self._connection, PlaceLinks(links[at : at + LINKS]), LINKS_S)
        except NoAnswer:  # the keeper is being restarted; the next turn tries again
            raise
        except (BadInput, Unreachable) as error:
            return str(error)
        return LINKS_PLACED

    async def follow(self, runner: PlanRunner, progress: Progress) -> None:
        """Set the states of steps whose moves are over."""
        rows = progress.rows(MOVING)
        if not rows:
            return
        ids = [progress.moves[row] for row in rows]
        records = (await wire.ask(self._connection, ListMoves(ids), 5.0)).moves
        phases = {record.id: record.phase for record in records}
        for row in rows:
            phase = phases.get(progress.moves[row], str(Phase.ROLLED_BACK))
            if phase in OVER:
                runner.set_state(time.time(), row, MOVED if phase == str(Phase.DONE) else FAILED, progress)

    async def record_end(self, progress: Progress, links: str = "") -> None:
        """Write what has become of a plan's steps; a verdict that was written before stays."""
        before = await self._record.outcome(progress.plan.number)
        outcome = Outcome.of(progress, links)
        if progress.plan.aside:
            outcome = msgspec.structs.replace(outcome, helped=None, unmeasured=ASIDE)
        if before is not None and before.helped is not msgspec.UNSET:
            steps = ("states", "moves", "began", "ended", "stopped", "links")
            outcome = msgspec.structs.replace(before, **{name: getattr(outcome, name) for name in steps})
        await self._record.record_outcome(progress.plan.number, outcome)
