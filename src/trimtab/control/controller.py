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
from trimtab.control.decide import NoPlan, decide, warm_up
from trimtab.control.fleet_view import FleetView
from trimtab.control.goals.evenness import policy_named
from trimtab.control.lease import RENEW_S, LeaderLease
from trimtab.control.outcome import Outcome
from trimtab.control.plan import Levels, Plan, Step, counted
from trimtab.control.plan_runner import PlanRunner
from trimtab.control.progress import FAILED, MOVED, MOVING, WAITING, Progress
from trimtab.control.question import Question
from trimtab.control.record import Record
from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.streams import CONTROL
from trimtab.migrate.move import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client as Nats
    from nats.aio.subscription import Subscription

    from trimtab.control.fleet_view import FleetState
    from trimtab.control.settings import Settings
    from trimtab.control.view import View

log = logging.getLogger("trimtab.controller")
TICK_S: Final = 0.2  # between looks at moves, and at who is there
LEAVE_S: Final = 900.0  # that a broker may take to be removed; then it is used again
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
        self._runner = PlanRunner(settings)
        self._view: View | None = None
        self._fleet: FleetState | None = None  # at the last look
        self._looked = self._throttled = -1e9
        self.leads = False
        self._paused = ""  # why
        self._begins_paused = paused
        self._deciding = asyncio.Lock()  # one at a time, the loop or somebody who asks
        self._listening: list[Subscription] = []

    async def run(self) -> None:
        await asyncio.to_thread(warm_up, self.settings.policy)
        bucket = await self._connection.jetstream().key_value(CONTROL)
        self._record = Record(self._connection, bucket)
        self._fleet_view = FleetView(self._connection, self._record)
        self._lease = LeaderLease(bucket, self.name)
        first = False
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            first = await self._lease.try_to_hold()
        self._begins_paused = self._begins_paused and first  # whoever takes over does as the one before did
        renewing = asyncio.create_task(self._renew())
        try:
            while True:
                try:
                    async with self._deciding:
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
        state = await self._record.take_over(self.name)
        numbers = await self._record.numbers()
        doing = Progress.from_json(state["progress"]) if state.get("progress") else None
        self._runner = PlanRunner(self.settings, max([*numbers, 0]), doing)
        self._runner.loop.remember(state.get("memory", {}))
        if numbers:
            await self._tell_of_the_last(numbers[-1], doing)
        self._paused = state.get("paused") or ("from the start" if self._begins_paused else "")
        self._begins_paused = False
        self._listening.append(await self._connection.subscribe("admin.control", cb=wire.answering(self._answer)))
        self._say(f"{self.name} leads" + (", and goes on with a plan" if doing else ""))

    async def _stop_listening(self) -> None:
        while self._listening:
            await self._listening.pop().unsubscribe()

    async def _tell_of_the_last(self, number: int, doing: Progress | None) -> None:
        """The one before may have died when its last decision was written down, and nothing of it begun; or when it was
        carried out, and nobody had seen yet what came of it."""
        said = await self._record.decision(number)
        if not said["plan"] or (doing is not None and doing.plan.number == number):
            return
        if not said["outcome"]:
            plan = Plan.from_json(said["plan"])
            dropped = Progress(plan, plan.at, ended=plan.at)
            dropped.drop("its controller died before it began")
            await self._record.came_of_it(number, dropped.outcome())
        elif "helped" not in said["outcome"]:
            unseen = Outcome(Plan.from_json(said["plan"]), 0.0, unmeasured="the controller that made it died before")
            await self._record.came_of_it(number, said["outcome"] | unseen.as_json())

    # Looking.

    async def _somebody_is_lost(self) -> bool:
        """A broker is away that was there; nobody waits a period for that."""
        alive = set(await self._fleet_view.alive())
        gone = self._view is not None and not set(self._view.brokers) <= alive
        return gone and bool(alive)

    async def _look(self) -> None:
        view, self._fleet = await self._fleet_view.look(self._runner.loop.leaving)
        self._view = view
        if view is None:
            self._runner.loop.found.clear()
            await self._rehome_without_measurement(self._fleet)
            self._say("waiting for a measurement of the fleet: is the pipeline running? (trimtab pipeline)")
            return
        # Beside everything else, for the lease must be renewed meanwhile.
        runner = self._runner
        made = await asyncio.to_thread(
            runner.look, time.time(), view, paused=bool(self._paused), cordoned=self._fleet.cordoned
        )
        self._refuse_if_another_leads()
        await self._verify()
        if made is not None and runner.loop.question is not None:
            await self._record.decided(view, runner.loop.question, made)
        if isinstance(made, Plan):
            await self._begin(made)
        elif isinstance(made, NoPlan):
            self._say(f"{'; '.join(made.reasons)}. Nothing moves: {made.why}")
        elif runner.progress is None:
            found = "; ".join(str(each) for each in runner.loop.found)
            self._say(f"{found} ({runner.loop.why_not})" if found else f"level: spread {view.load().cov:.2f}")
        await self._save()

    async def _rehome_without_measurement(self, fleet: FleetState) -> None:
        """Keys of a broker that is not alive, spread by their number: all that is known without a measurement."""
        plan = requests.by_number(time.time(), fleet.movable(), fleet.open())
        doing = self._runner.progress
        going = {step.key for step in [*doing.of(WAITING), *doing.of(MOVING)]} if doing else set()
        if plan is not None and not all(step.key in going for step in plan.steps):
            await self._by_hand(plan)

    async def _by_hand(self, plan: Plan) -> Plan:
        """Carry out what was not decided from a measurement."""
        plan = replace(plan, number=self._runner.loop.number + 1)
        self._runner.loop.number = plan.number
        question = Question(plan.number, plan.at, plan.reasons, plan.policy, 0, 0.0, len(plan.steps))
        await self._record.decided(None, question, plan)
        await self._begin(plan, by_hand=True)
        return plan

    async def _verify(self) -> None:
        """Tell what came of plans, once that was measured."""
        verdicts = self._runner.loop.verdicts
        while verdicts:
            outcome = verdicts[0]
            said = (await self._record.decision(outcome.plan.number))["outcome"] or {}
            await self._record.came_of_it(outcome.plan.number, said | outcome.as_json())
            verdicts.pop(0)

    def _refuse_if_another_leads(self) -> None:
        """After anything that may have taken long."""
        if not self._lease.held:
            raise Unreachable(f"{self.name} does not lead any more; ask again")

    # Moving.

    async def _begin(self, plan: Plan, *, by_hand: bool = False) -> None:
        before = self._runner.begin(time.time(), plan, by_hand=by_hand)
        if before is not None:
            self._tell_people(before)
        self._throttled = time.monotonic()
        self._say(
            f"plan {plan.number}: {counted(step.key for step in plan.steps)} to move, because "
            f"{'; '.join(plan.reasons)}; spread "
            f"{plan.before.spread:.2f} -> {plan.predicted.spread:.2f}"
        )
        await self._save()

    async def _carry_on(self) -> None:
        for before in list(self._runner.trailing):
            await self._follow_up(before)
            if before.over:
                said = (await self._record.decision(before.plan.number))["outcome"] or {}
                await self._record.came_of_it(before.plan.number, said | before.outcome())
                self._runner.trailing.remove(before)
        progress = self._runner.progress
        if progress is None:
            return
        await self._follow_up(progress)
        self._refuse_if_another_leads()
        if self._view is not None and time.monotonic() >= self._throttled + 1.0:
            self._throttled = time.monotonic()
            latencies = [each.latency_ms for each in self._view.usage.values()]
            self._runner.throttle.told(max(latencies, default=0.0), self._view.at)
        due = self._runner.due(paused=bool(self._paused))
        for row in due:
            if not self._lease.held:
                return
            await self._order(progress, row)
        if due:
            await self._save()
        if (ended := self._runner.finished()) is not None:
            ended.ended = time.time()
            await self._tell_end(ended)  # if that cannot be written, it is tried again
            self._runner.end(time.time())
            await self._save()

    async def _order(self, progress: Progress, row: int) -> None:
        step = progress.plan.steps[row]
        move = {"unit": step.key.unit, "topic": step.key.topic, "client": step.key.client, "to": step.target}
        try:
            progress.moves[row] = (await wire.ask(self._connection, "admin.move", {"moves": [move]}, 10.0))["moves"][0]
            state = MOVING
        except Unreachable:  # the keeper, which is started again; or where it should go, and that will be seen
            raise
        except BadInput as error:
            if "is moving already" in str(error):  # by somebody else's order; it is looked at again when that is over
                return
            state = MOVED if f"is at '{step.target}' already" in str(error) else FAILED
        self._runner.came_of(time.time(), row, state)

    async def _follow_up(self, progress: Progress) -> None:
        rows = progress.rows(MOVING)
        if not rows:
            return
        said = await wire.ask(self._connection, "admin.moves", {"ids": [progress.moves[row] for row in rows]}, 5.0)
        phases = {each["id"]: each["phase"] for each in said["moves"]}
        for row in rows:
            phase = phases.get(progress.moves[row], str(Phase.ROLLED_BACK))
            if phase in OVER:
                self._runner.came_of(time.time(), row, MOVED if phase == str(Phase.DONE) else FAILED, progress)

    async def _tell_end(self, progress: Progress) -> None:
        await self._record.came_of_it(progress.plan.number, progress.outcome())
        self._tell_people(progress)

    def _tell_people(self, progress: Progress) -> None:
        moved, failed = progress.count(MOVED), progress.count(FAILED)
        why = f"; the rest was dropped: {progress.stopped}" if progress.stopped else ""
        self._say(f"plan {progress.plan.number}: {moved:,} moved, {failed:,} failed{why}")

    async def _save(self) -> None:
        await self._record.write_state(self._state())

    def _state(self) -> dict[str, Any]:
        view, loop, doing = self._view, self._runner.loop, self._runner.progress
        return {
            "leader": self.name, "at": time.time(), "says": self._last_said,
            "paused": self._paused, "findings": [str(each) for each in loop.found], "why_not": loop.why_not,
            "measured": view.at if view else None,
            "waiting": self._fleet.waiting() if self._fleet else {},
            "cordoned": sorted(self._fleet.cordoned) if self._fleet else [],
            "load": Levels.of(view.load()).as_json() if view else None,
            "brokers": dict(zip(view.brokers, view.load().per_broker.tolist(), strict=True)) if view else {},
            "at_once": self._runner.throttle.at_once,
            "progress": doing.as_json() if doing else None,
            "left_s": doing.left_s(time.time()) if doing else None,
            "memory": loop.memory(time.time()),
        }  # fmt: skip

    # What people ask for.

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if not self.leads:
            raise Unreachable("this controller does not lead any more; ask again")
        verbs = {
            "pause": self._pause, "resume": self._resume, "rebalance": self._rebalance,
            "stop": self._stop, "rollback": self._roll_back, "empty": self._empty, "apply": self._apply,
        }  # fmt: skip
        if question["verb"] == "status":  # nobody who only looks has to wait
            return self._state() | {"memory": None, "leaving": sorted(self._runner.loop.leaving)}
        async with self._deciding:
            self._refuse_if_another_leads()
            return await verbs[question["verb"]](question)

    async def _pause(self, said: dict[str, Any]) -> dict[str, Any]:
        """Nothing moves by itself from now on, except keys whose broker is not alive."""
        self._paused = said.get("reason") or "by hand"
        await self._save()
        return {"paused": self._paused}

    async def _resume(self, _: dict[str, Any]) -> dict[str, Any]:
        self._paused = ""
        await self._save()
        return {"paused": ""}

    async def _fresh_view(self) -> View:
        view, self._fleet = await self._fleet_view.look(self._runner.loop.leaving)
        if view is None:
            raise BadInput("there is no measurement of the fleet yet: is the pipeline running? (trimtab pipeline)")
        return view

    def _refuse_if_busy(self) -> None:
        if (doing := self._runner.progress) is not None:
            done, all_ = doing.count(MOVED), len(doing.plan.steps)
            raise BadInput(f"plan {doing.plan.number} is under way, {done} of {all_} moved; stop it first")

    async def _rebalance(self, said: dict[str, Any]) -> dict[str, Any]:
        """A plan now, whatever the detectors say; carried out with ``apply``."""
        if said["apply"]:
            self._refuse_if_busy()
        view = await self._fresh_view()
        number = self._runner.loop.number + 1
        question = requests.rebalance(number, time.time(), view, self.settings, said)
        cordoned = tuple(sorted(set(self._fleet.cordoned if self._fleet else ()) & set(view.brokers)))
        question = replace(question, unfit=cordoned)
        return await self._do(view, question, apply=said["apply"])

    async def _empty(self, said: dict[str, Any]) -> dict[str, Any]:
        """Every key off a broker, with balance in mind; no other key moves, and none goes there."""
        self._refuse_if_busy()
        name, leaving = said["broker"], self._runner.loop.leaving
        fleet = await self._fleet_view.state()
        requests.refuse_to_empty(name, fleet.alive)
        leaving[name] = time.time() + LEAVE_S
        try:
            if name not in fleet.routing().brokers.values():
                await self._save()
                return {"plan": None, "why_not": f"no client, topic or link is placed at '{name}'", "applied": False}
            (view, _), number = await self._fleet_view.look(leaving), self._runner.loop.number + 1
            if view is None:
                others = [each for each in fleet.open() if each != name]
                reasons = requests.leaves(name, said.get("reason"))
                plan = requests.by_number(time.time(), fleet.movable(), others, reasons)
                assert plan is not None
                return {"plan": (await self._by_hand(plan)).as_json(), "applied": True}
            question = requests.empty(number, time.time(), self.settings, name, said.get("reason"))
            unfit = tuple(sorted(set(fleet.cordoned) & set(view.brokers) - {name}))
            return await self._do(view, replace(question, unfit=unfit), apply=True)
        except BaseException:
            leaving.pop(name, None)
            raise

    async def _do(self, view: View, question: Question, *, apply: bool) -> dict[str, Any]:
        made = await asyncio.to_thread(decide, view, question)
        self._refuse_if_another_leads()
        if isinstance(made, NoPlan):
            return {"plan": None, "why_not": made.why, "applied": False}
        applied = apply and bool(made.steps)
        if applied:
            self._runner.loop.number = question.number
            await self._record.decided(view, question, made)
            await self._begin(made, by_hand=True)
        return {"plan": made.as_json(), "applied": applied}

    async def _roll_back(self, said: dict[str, Any]) -> dict[str, Any]:
        """Everything that a plan has moved back to where it came from."""
        self._refuse_if_busy()
        view, which = await self._fresh_view(), said.get("plan")
        for number in [which] if which is not None else reversed(await self._record.numbers()):
            known = await self._record.decision(number)
            if known["plan"] and "states" in (known["outcome"] or {}):
                break
        else:
            raise BadInput("no plan has been carried out that could be taken back")
        if not known["plan"] or "states" not in (known["outcome"] or {}):
            raise BadInput(f"decision {number} has moved nothing: there is nothing to take back")
        plan = requests.back(time.time(), view, Plan.from_json(known["plan"]), known["outcome"], said.get("reason"))
        return {"plan": (await self._by_hand(plan)).as_json(), "applied": True}

    async def _apply(self, said: dict[str, Any]) -> dict[str, Any]:
        """Moves that somebody else has planned, as one plan: with progress, stop and roll-back."""
        self._refuse_if_busy()
        view = await self._fresh_view()
        steps = tuple(Step.from_json(each) for each in said["steps"])
        reasons = requests.because("a placement is applied", said.get("reason"))
        plan = requests.by_hand(time.time(), view, steps, reasons, "apply")
        if not said["apply"]:
            return {"plan": plan.as_json(), "applied": False}
        return {"plan": (await self._by_hand(plan)).as_json(), "applied": True}

    async def _stop(self, said: dict[str, Any]) -> dict[str, Any]:
        doing, leaving = self._runner.progress, sorted(self._runner.loop.leaving)
        if doing is None and not leaving:
            raise BadInput("no plan is under way")
        if doing is not None:
            doing.drop(said.get("reason") or "stopped by hand")
        self._runner.loop.leaving.clear()  # whoever was to be removed stays
        await self._save()
        count = {name: doing.count(name) if doing else 0 for name in (MOVED, MOVING)}
        return {"plan": doing.plan.number if doing else None, "stay": leaving} | count
