"""The loop over a live fleet: leads or stands by, looks, decides, has keys moved, says what it is doing and why."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.control import requests
from trimtab.control.decide import NoPlan, warm_up
from trimtab.control.fleet_view import FleetView
from trimtab.control.goals.evenness import policy_named
from trimtab.control.lease import RENEW_S, LeaderLease
from trimtab.control.outcome import Outcome
from trimtab.control.plan import Levels, Plan
from trimtab.control.plan_runner import PlanRunner
from trimtab.control.progress import FAILED, MOVED, MOVING, WAITING, Progress
from trimtab.control.question import Question
from trimtab.control.record import Record
from trimtab.control.service import ControlService
from trimtab.errors import AlreadyThere, BadInput, Moving, NoAnswer, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ListMoves, MoveOrder, StartMoves
from trimtab.fleet.protocol.streams import CONTROL
from trimtab.migrate.move import Phase
from trimtab.model.key import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client as Nats
    from nats.aio.subscription import Subscription

    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.fleet.operator.state import FleetState

log = logging.getLogger("trimtab.controller")
TICK_S: Final = 0.2  # between looks at moves, and at who is there
OVER: Final = {str(phase) for phase in Phase if phase.over}


class Controller:
    """Runs until it is cancelled. ``told`` hears a sentence whenever something has changed."""

    def __init__(
        self, connection: Nats, settings: Settings, told: Callable[[str], None], *, paused: bool = False
    ) -> None:
        policy_named(settings.policy, set_to=settings.knobs)  # before anything begins
        self.name = f"controller-{secrets.token_hex(3)}"
        self.settings = settings
        self._connection = connection
        self._told = told
        self._last_said = ""
        self.runner = PlanRunner(settings)
        self._view: View | None = None
        self.fleet: FleetState | None = None  # at the last look
        self._looked = self._throttled = -1e9
        self.leads = False
        self.paused = ""  # why
        self._begins_paused = paused
        self.deciding = asyncio.Lock()  # one at a time, the loop or somebody who asks
        self._listening: list[Subscription] = []

    async def run(self) -> None:
        await asyncio.to_thread(warm_up, self.settings.policy)
        bucket = await self._connection.jetstream().key_value(CONTROL)
        self.record = Record(self._connection, bucket)
        self.fleet_view = FleetView(self._connection, self.record)
        self._lease = LeaderLease(bucket, self.name)
        first = False
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            first = await self._lease.try_to_hold()
        self._begins_paused = self._begins_paused and first  # whoever takes over does as the one before did
        renewing = asyncio.create_task(self._renew())
        try:
            while True:
                try:
                    async with self.deciding:
                        await self._turn()
                except (Unreachable, nats.errors.Error, TimeoutError, OSError) as error:
                    self._say(f"waiting for the hub: {error}")
                except BadInput as error:
                    self._say(f"nothing can be decided: {error}")
                await asyncio.sleep(TICK_S)
        finally:
            await tasks.end(renewing)  # or it could take the lease again
            with contextlib.suppress(Exception):
                await tasks.within(2.0, self._lease.give_back())

    async def _renew(self) -> None:
        while True:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                await tasks.within(RENEW_S * 2, self._lease.try_to_hold())
            await asyncio.sleep(RENEW_S)

    def _say(self, what: str) -> None:
        if what != self._last_said:
            self._last_said = what
            self._told(what)

    async def _turn(self) -> None:
        if self._lease.held != self.leads:
            await self._stop_listening()
            if self._lease.held:
                await self._take_over()
            self.leads = self._lease.held
        if not self.leads:
            self._say(
                "standing by: another controller leads" if self._connection.is_connected else "waiting for the hub"
            )
            return
        await self._carry_on()
        if time.monotonic() >= self._looked + self.settings.period_s or await self._somebody_is_lost():
            self._looked = time.monotonic()
            await self._look()

    async def _take_over(self) -> None:
        """Go on where the one before was: with its plan, if the rest of it still helps, and with what it knew."""
        state = await self.record.take_over(self.name)
        numbers = await self.record.numbers()
        doing = Progress.from_json(state["progress"]) if state.get("progress") else None
        self.runner = PlanRunner(self.settings, max([*numbers, 0]), doing)
        self.runner.loop.remember(state.get("memory", {}))
        if numbers:
            await self._tell_of_the_last(numbers[-1], doing)
        self.paused = state.get("paused") or ("from the start" if self._begins_paused else "")
        self._begins_paused = False
        self._listening += await wire.serve(self._connection, ControlService(self).handlers())
        self._say(f"{self.name} leads" + (", and goes on with a plan" if doing else ""))

    async def _stop_listening(self) -> None:
        while self._listening:
            await self._listening.pop().unsubscribe()

    async def _tell_of_the_last(self, number: int, doing: Progress | None) -> None:
        """The one before may have died when its last decision was written down, and nothing of it begun; or when it was
        carried out, and nobody had seen yet what came of it."""
        said = await self.record.decision(number)
        if not said["plan"] or (doing is not None and doing.plan.number == number):
            return
        if not said["outcome"]:
            plan = Plan.from_json(said["plan"])
            dropped = Progress(plan, plan.at, ended=plan.at)
            dropped.drop("its controller died before it began")
            await self.record.came_of_it(number, dropped.outcome())
        elif "helped" not in said["outcome"]:
            unseen = Outcome(Plan.from_json(said["plan"]), 0.0, unmeasured="the controller that made it died before")
            await self.record.came_of_it(number, said["outcome"] | unseen.as_json())

    # Looking.

    async def _somebody_is_lost(self) -> bool:
        """A broker is away that was there; nobody waits a period for that."""
        alive = set(await self.fleet_view.alive())
        gone = self._view is not None and not set(self._view.brokers) <= alive
        return gone and bool(alive)

    async def _look(self) -> None:
        view, self.fleet = await self.fleet_view.look(self.runner.loop.leaving)
        self._view = view
        if view is None:
            self.runner.loop.found.clear()
            await self._rehome_without_measurement(self.fleet)
            self._say("waiting for a measurement of the fleet: is the pipeline running? (trimtab pipeline)")
            return
        # Beside everything else, for the lease must be renewed meanwhile.
        runner = self.runner
        made = await asyncio.to_thread(
            runner.look, time.time(), view, paused=bool(self.paused), cordoned=self.fleet.cordoned
        )
        self.refuse_if_another_leads()
        await self._verify()
        if made is not None and runner.loop.question is not None:
            await self.record.decided(view, runner.loop.question, made)
        if isinstance(made, Plan):
            await self.begin(made)
        elif isinstance(made, NoPlan):
            self._say(f"{'; '.join(made.reasons)}. Nothing moves: {made.why}")
        elif runner.progress is None:
            found = "; ".join(str(each) for each in runner.loop.found)
            self._say(f"{found} ({runner.loop.why_not})" if found else f"level: spread {view.load().cov:.2f}")
        await self.save()

    async def _rehome_without_measurement(self, fleet: FleetState) -> None:
        """Keys of a broker that is not alive, spread by their number: all that is known without a measurement."""
        plan = requests.by_number(time.time(), fleet.movable(), fleet.open())
        doing = self.runner.progress
        going = {step.key for step in [*doing.of(WAITING), *doing.of(MOVING)]} if doing else set()
        if plan is not None and not all(step.key in going for step in plan.steps):
            await self.begin_by_hand(plan)

    async def begin_by_hand(self, plan: Plan) -> Plan:
        """Carry out what was not decided from a measurement."""
        plan = replace(plan, number=self.runner.loop.number + 1)
        self.runner.loop.number = plan.number
        question = Question(plan.number, plan.at, plan.reasons, plan.policy, 0, 0.0, len(plan.steps))
        await self.record.decided(None, question, plan)
        await self.begin(plan, by_hand=True)
        return plan

    async def _verify(self) -> None:
        """Tell what came of plans, once that was measured."""
        verdicts = self.runner.loop.verdicts
        while verdicts:
            outcome = verdicts[0]
            said = (await self.record.decision(outcome.plan.number))["outcome"] or {}
            await self.record.came_of_it(outcome.plan.number, said | outcome.as_json())
            verdicts.pop(0)

    def refuse_if_another_leads(self) -> None:
        """After anything that may have taken long."""
        if not self._lease.held:
            raise Unreachable(f"{self.name} does not lead any more; ask again")

    # Moving.

    async def begin(self, plan: Plan, *, by_hand: bool = False) -> None:
        before = self.runner.begin(time.time(), plan, by_hand=by_hand)
        if before is not None:
            self._tell_people(before)
        self._throttled = time.monotonic()
        self._say(
            f"plan {plan.number}: {counted(step.key for step in plan.steps)} to move, because "
            f"{'; '.join(plan.reasons)}; spread "
            f"{plan.before.spread:.2f} -> {plan.predicted.spread:.2f}"
        )
        await self.save()

    async def _carry_on(self) -> None:
        for before in list(self.runner.trailing):
            await self._follow_up(before)
            if before.over:
                said = (await self.record.decision(before.plan.number))["outcome"] or {}
                await self.record.came_of_it(before.plan.number, said | before.outcome())
                self.runner.trailing.remove(before)
        progress = self.runner.progress
        if progress is None:
            return
        await self._follow_up(progress)
        self.refuse_if_another_leads()
        if self._view is not None and time.monotonic() >= self._throttled + 1.0:
            self._throttled = time.monotonic()
            latencies = [each.latency_ms for each in self._view.usage.values()]
            self.runner.throttle.told(max(latencies, default=0.0), self._view.at)
        due = self.runner.due(paused=bool(self.paused))
        for row in due:
            if not self._lease.held:
                return
            await self._order(progress, row)
        if due:
            await self.save()
        if (ended := self.runner.finished()) is not None:
            ended.ended = time.time()
            await self._tell_end(ended)  # if that cannot be written, it is tried again
            self.runner.end(time.time())
            await self.save()

    async def _order(self, progress: Progress, row: int) -> None:
        step = progress.plan.steps[row]
        try:
            order = StartMoves([MoveOrder(step.key, step.target)])
            progress.moves[row] = (await wire.ask(self._connection, order, 10.0)).moves[0]
            state = MOVING
        except NoAnswer:  # of the keeper, which is started again
            raise
        except Moving:  # by somebody else's order; this step is tried again when that is over
            return
        except AlreadyThere:
            state = MOVED
        except (BadInput, Unreachable):
            state = FAILED
        self.runner.came_of(time.time(), row, state)

    async def _follow_up(self, progress: Progress) -> None:
        rows = progress.rows(MOVING)
        if not rows:
            return
        ids = [progress.moves[row] for row in rows]
        records = (await wire.ask(self._connection, ListMoves(ids), 5.0)).moves
        phases = {each.id: each.phase for each in records}
        for row in rows:
            phase = phases.get(progress.moves[row], str(Phase.ROLLED_BACK))
            if phase in OVER:
                self.runner.came_of(time.time(), row, MOVED if phase == str(Phase.DONE) else FAILED, progress)

    async def _tell_end(self, progress: Progress) -> None:
        await self.record.came_of_it(progress.plan.number, progress.outcome())
        self._tell_people(progress)

    def _tell_people(self, progress: Progress) -> None:
        moved, failed = progress.count(MOVED), progress.count(FAILED)
        why = f"; the rest was dropped: {progress.stopped}" if progress.stopped else ""
        self._say(f"plan {progress.plan.number}: {moved:,} moved, {failed:,} failed{why}")

    async def save(self) -> None:
        await self.record.write_state(self.state())

    def state(self) -> dict[str, Any]:
        view, loop, doing = self._view, self.runner.loop, self.runner.progress
        return {
            "leader": self.name, "at": time.time(), "says": self._last_said,
            "policy": self.settings.policy,
            "paused": self.paused, "findings": [str(each) for each in loop.found], "why_not": loop.why_not,
            "measured": view.at if view else None,
            "waiting": self.fleet.waiting() if self.fleet else {},
            "cordoned": sorted(self.fleet.cordoned) if self.fleet else [],
            "load": Levels.of(view.load()).as_json() if view else None,
            "brokers": dict(zip(view.brokers, view.load().per_broker.tolist(), strict=True)) if view else {},
            "at_once": self.runner.throttle.at_once,
            "progress": doing.as_json() if doing else None,
            "left_s": doing.left_s(time.time()) if doing else None,
            "memory": loop.memory(time.time()),
        }  # fmt: skip
