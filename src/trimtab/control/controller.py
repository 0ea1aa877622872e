"""The loop over a live fleet: leads or stands by, looks, decides, has clients moved, says what it is doing and why."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import nats.errors

from trimtab.control import record
from trimtab.control.decide import NoPlan, Question, decide, policy_named, warm_up
from trimtab.control.lease import RENEW_S, Lease
from trimtab.control.loop import Loop
from trimtab.control.plan import Levels, Plan, Step
from trimtab.control.record import FAILED, MOVED, MOVING, WAITING, Progress, Record
from trimtab.control.throttle import FIRST, Throttle
from trimtab.control.view import View
from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import wire
from trimtab.fleet.keeper import CONTROL
from trimtab.migrate.move import Phase

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client as Nats
    from nats.aio.subscription import Subscription

    from trimtab.control.settings import Settings
    from trimtab.observe.snapshot import Snapshot

log = logging.getLogger("trimtab.controller")
TICK_S: Final = 0.2  # between looks at moves, and at who is there
OLD_S: Final = 30.0  # a measurement that is older is none
EXECUTORS: Final = 64
OVER: Final = {str(phase) for phase in Phase if phase.over}


class Controller:
    """Runs until it is cancelled. ``told`` hears a sentence whenever something has changed."""

    def __init__(
        self, connection: Nats, settings: Settings, told: Callable[[str], None], *, paused: bool = False
    ) -> None:
        policy_named(settings.policy)  # before anything begins
        self.name = f"controller-{secrets.token_hex(3)}"
        self.settings = settings
        self._connection = connection
        self._told = told
        self._last_said = ""
        self._loop = Loop(settings)
        self._progress: Progress | None = None
        self._throttle = Throttle(settings.latency_ms, EXECUTORS)
        self._snapshot: tuple[int, Snapshot] | None = None
        self._view: View | None = None
        self._looked = -1e9
        self._verified = 0
        self.leads = False
        self._paused = "from the start" if paused else ""  # why
        self._deciding = asyncio.Lock()  # one at a time, the loop or somebody who asks
        self._listening: Subscription | None = None

    async def run(self) -> None:
        await asyncio.to_thread(warm_up, self.settings.policy)
        bucket = await self._connection.jetstream().key_value(CONTROL)
        self._record = Record(self._connection, bucket)
        self._lease = Lease(bucket, self.name)
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            await self._lease.try_to_hold()
        renewing = asyncio.create_task(self._renew())
        try:
            while True:
                try:
                    async with self._deciding:
                        await self._turn()
                except (BadInput, nats.errors.Error, TimeoutError, OSError) as error:
                    self._say(f"waiting for the hub: {error}")
                await asyncio.sleep(TICK_S)
        finally:
            renewing.cancel()
            with contextlib.suppress(Exception):
                await asyncio.wait_for(self._lease.give_back(), 2.0)

    async def _renew(self) -> None:
        while True:
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                await asyncio.wait_for(self._lease.try_to_hold(), RENEW_S * 2)
            await asyncio.sleep(RENEW_S)

    def _say(self, what: str) -> None:
        if what != self._last_said:
            self._last_said = what
            self._told(what)

    async def _turn(self) -> None:
        if self._lease.held != self.leads:
            self.leads = self._lease.held
            if self.leads:
                await self._take_over()
            elif self._listening is not None:
                await self._listening.unsubscribe()
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
        """Go on where the one before was: with its plan, if the rest of it still helps."""
        self._listening = await self._connection.subscribe("admin.control", cb=wire.answering(self._answer))
        state = await self._record.read_state()
        numbers = await self._record.numbers()
        self._loop = Loop(self.settings, number=max([*numbers, 0]))
        self._progress = Progress.from_json(state["progress"]) if state.get("progress") else None
        self._throttled = time.monotonic()
        self._paused = state.get("paused", self._paused)
        self._say(f"{self.name} leads" + (", and goes on with a plan" if self._progress else ""))

    # Looking.

    async def _somebody_is_lost(self) -> bool:
        """A broker is away that was there; nobody waits a period for that."""
        alive = set((await self._brokers())[1])
        gone = self._view is not None and not set(self._view.brokers) <= alive
        return gone and bool(alive)

    async def _brokers(self) -> tuple[dict[str, Any], list[str]]:
        said = await wire.ask(self._connection, "admin.state", {"kind": "broker"}, 2.0)
        return said["entries"], said["alive"]

    async def _see(self) -> View | None:
        """What there is to decide on, if anything."""
        found = await self._record.snapshot(self._snapshot[0] if self._snapshot else 0)
        self._snapshot = found or self._snapshot
        if self._snapshot is None or time.time() - self._snapshot[1].at > OLD_S:
            return None
        said = await wire.ask(self._connection, "admin.state", {"kind": "client"}, 5.0)
        snapshot, alive = self._snapshot[1], set(said["alive"])
        there = set(snapshot.workload.clients.ids)
        # Whoever is not there counts for nothing, but must have a home that is alive when it comes back.
        homes = {
            name: str(each["home"])
            for name, each in said["entries"].items()
            if name in there or each["home"] not in alive
        }
        return View.of(snapshot, homes, said["alive"])

    async def _look(self) -> None:
        view = await self._see()
        self._view = view
        if view is None:
            await self._rehome_without_measurement()
            self._say("waiting for a measurement of the fleet: is the pipeline running? (trimtab pipeline)")
            return
        doing = self._progress
        if doing is not None and not doing.by_hand and not self._loop.still_helps(view, doing.of(WAITING)):
            doing.drop("the rest of it would no longer help")
        # Beside everything else, for the lease must be renewed meanwhile.
        made = await asyncio.to_thread(
            self._loop.step, time.time(), view, busy=self._progress is not None, paused=bool(self._paused)
        )
        await self._verify()
        if made is not None and self._loop.question is not None:
            await self._record.decided(view, self._loop.question, made)
        if isinstance(made, Plan):
            if self._progress is not None:
                self._progress.drop("a broker is away, and its clients go first")
                await self._end()
            await self._begin(made)
        elif isinstance(made, NoPlan):
            self._say(f"{'; '.join(made.reasons)}. Nothing moves: {made.why}")
        elif self._progress is None:
            load = view.load()
            found = "; ".join(str(each) for each in self._loop.found)
            calm = f"level: spread {load.cov:.2f}"
            self._say(f"{found} ({self._loop.why_not})" if found else calm)
        await self._save()

    async def _rehome_without_measurement(self) -> None:
        """Clients of a broker that is away, spread by their number: all that is known without a measurement."""
        said = await wire.ask(self._connection, "admin.state", {"kind": "client"}, 5.0)
        alive = list(said["alive"])
        lost = [name for name, each in said["entries"].items() if each["home"] not in alive]
        if not lost or not alive or self._progress is not None:
            return
        count = {broker: sum(each["home"] == broker for each in said["entries"].values()) for broker in alive}
        steps = []
        for name in lost:
            target = min(count, key=lambda broker: (count[broker], broker))
            count[target] += 1
            steps.append(Step(name, "", target))
        nothing = Levels(0.0, 0.0, 0.0)
        reasons = (f"{len(lost):,} clients have no home, and there is no measurement to place them by",)
        await self._by_hand(Plan(0, time.time(), reasons, "by number", tuple(steps), nothing, nothing))

    async def _by_hand(self, plan: Plan) -> Plan:
        """Carry out what was not decided from a measurement."""
        self._loop.number += 1
        plan = replace(plan, number=self._loop.number)
        question = Question(plan.number, plan.at, plan.reasons, plan.policy, 0, 0.0, len(plan.steps))
        await self._record.decided(None, question, plan)
        await self._begin(plan, by_hand=True)
        return plan

    async def _verify(self) -> None:
        """Tell what came of plans, once that was measured."""
        for number, outcome in self._loop.outcomes.items():
            if number > self._verified and outcome.helped is not None:
                self._verified = number
                said = (await self._record.decision(number))["outcome"] or {}
                helped = {
                    "measured": record.levels(outcome.measured), "said_before": record.levels(outcome.said_before),
                    "said": record.levels(outcome.said), "helped": outcome.helped,
                }  # fmt: skip
                await self._record.came_of_it(number, said | helped)

    # Moving.

    async def _begin(self, plan: Plan, *, by_hand: bool = False) -> None:
        self._progress = Progress(plan, by_hand)
        lost = any(not each.source for each in plan.steps)
        self._throttle = Throttle(self.settings.latency_ms, EXECUTORS, EXECUTORS if lost else FIRST)
        self._throttled = time.monotonic()
        self._say(
            f"plan {plan.number}: {len(plan.steps):,} clients move, because {'; '.join(plan.reasons)}; spread "
            f"{plan.before.spread:.2f} -> {plan.predicted.spread:.2f}"
        )
        await self._save()

    async def _carry_on(self) -> None:
        progress = self._progress
        if progress is None:
            return
        await self._follow_up(progress)
        if time.monotonic() >= self._throttled + 1.0:
            self._throttled = time.monotonic()
            latencies = [each.latency_ms for each in self._view.usage.values()] if self._view else []
            self._throttle.told(max(latencies, default=0.0))
        if self._loop.is_hopeless(progress.of(FAILED)) and progress.count(WAITING):
            progress.drop("too many of its moves failed")
        room = self._throttle.at_once - progress.count(MOVING)
        waiting = [at for at, state in enumerate(progress.states) if state == WAITING][: max(0, room)]
        for at in waiting:
            if not self._lease.held:
                return
            await self._order(progress, at)
        if waiting:
            await self._save()
        if not progress.count(WAITING) and not progress.count(MOVING):
            await self._end()

    async def _order(self, progress: Progress, at: int) -> None:
        step = progress.plan.steps[at]
        move = {"unit": "client", "client": step.client, "to": step.target}
        try:
            progress.moves[at] = (await wire.ask(self._connection, "admin.move", {"moves": [move]}, 10.0))["moves"][0]
            progress.states[at] = MOVING
        except Unreachable:
            if not self._connection.is_connected:
                raise
            progress.states[at] = FAILED
        except BadInput as error:  # it is there already, or it is gone
            progress.states[at] = MOVED if "already" in str(error) else FAILED

    async def _follow_up(self, progress: Progress) -> None:
        ids = [progress.moves[at] for at, state in enumerate(progress.states) if state == MOVING]
        if not ids:
            return
        said = await wire.ask(self._connection, "admin.moves", {"ids": ids}, 5.0)
        phases = {each["id"]: each["phase"] for each in said["moves"]}
        moved = []
        for at, state in enumerate(progress.states):
            if state == MOVING and phases.get(progress.moves[at], str(Phase.ROLLED_BACK)) in OVER:
                good = phases.get(progress.moves[at]) == str(Phase.DONE)
                progress.states[at] = MOVED if good else FAILED
                if good:
                    moved.append(progress.plan.steps[at])
        self._loop.moved(time.time(), moved)

    async def _end(self) -> None:
        progress = self._progress
        assert progress is not None
        progress.ended = time.time()
        self._loop.ended(progress.ended, progress.plan, progress.of(FAILED))
        await self._record.came_of_it(progress.plan.number, record.outcome_of(progress))
        moved, failed = progress.count(MOVED), progress.count(FAILED)
        why = f"; the rest was dropped: {progress.stopped}" if progress.stopped else ""
        self._say(f"plan {progress.plan.number}: {moved:,} moved, {failed:,} failed{why}")
        self._progress = None
        await self._save()

    async def _save(self) -> None:
        await self._record.write_state(self._state())

    def _state(self) -> dict[str, Any]:
        view = self._view
        return {
            "leader": self.name, "at": time.time(), "says": self._last_said,
            "paused": self._paused, "findings": [str(each) for each in self._loop.found], "why_not": self._loop.why_not,
            "measured": view.at if view else None,
            "load": Levels.of(view.load()).as_json() if view else None,
            "brokers": dict(zip(view.brokers, view.load().per_broker.tolist(), strict=True)) if view else {},
            "at_once": self._throttle.at_once,
            "progress": self._progress.as_json() if self._progress else None,
            "left_s": self._progress.left_s if self._progress else None,
        }  # fmt: skip

    # What people ask for.

    async def _answer(self, question: dict[str, Any]) -> dict[str, Any]:
        if not self.leads:
            raise Unreachable("this controller does not lead any more; ask again")
        verbs = {
            "pause": self._pause, "resume": self._resume, "rebalance": self._rebalance,
            "stop": self._stop, "rollback": self._roll_back, "empty": self._empty,
        }  # fmt: skip
        if question["verb"] == "status":  # nobody who only looks has to wait
            return self._state()
        async with self._deciding:
            return await verbs[question["verb"]](question)

    async def _pause(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Nothing moves by itself from now on, but for clients whose broker is away."""
        self._paused = asked.get("reason") or "by hand"
        await self._save()
        return {"paused": self._paused}

    async def _resume(self, _: dict[str, Any]) -> dict[str, Any]:
        self._paused = ""
        await self._save()
        return {"paused": ""}

    async def _fresh_view(self) -> View:
        view = await self._see()
        if view is None:
            raise BadInput("there is no measurement of the fleet yet: is the pipeline running? (trimtab pipeline)")
        return view

    def _refuse_if_busy(self) -> None:
        if self._progress is not None:
            done, all_ = self._progress.count(MOVED), len(self._progress.plan.steps)
            raise BadInput(f"plan {self._progress.plan.number} is under way, {done} of {all_} moved; stop it first")

    async def _rebalance(self, asked: dict[str, Any]) -> dict[str, Any]:
        """A plan now, whatever the detectors say; carried out with ``apply``."""
        view = await self._fresh_view()
        if asked["apply"]:
            self._refuse_if_busy()
        policy = asked.get("policy") or self.settings.policy
        policy_named(policy)
        number = self._loop.number + 1
        budget = asked.get("budget")
        most = len(view.clients) if budget is None else round(budget * len(view.clients))
        question = Question(
            number, time.time(), (f"asked for: {asked['reason']}" if asked.get("reason") else "asked for",), policy,
            self.settings.seed + number, 0.0, most,
        )  # fmt: skip
        return await self._do(view, question, await asyncio.to_thread(decide, view, question), asked)

    async def _empty(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Everybody off a broker, with balance in mind; nobody else moves."""
        view, leaving = await self._fresh_view(), asked["broker"]
        self._refuse_if_busy()
        if leaving not in set(view.brokers):
            raise BadInput(f"broker '{leaving}' is not alive; alive: {', '.join(view.brokers)}")
        if len(view.brokers) == 1:
            raise BadInput(f"'{leaving}' is the last broker: there is nowhere to go; add a broker first")
        number = self._loop.number + 1
        reasons = (f"'{leaving}' is to be removed" + (f": {asked['reason']}" if asked.get("reason") else ""),)
        question = Question(
            number, time.time(), reasons, self.settings.policy, self.settings.seed, 0.0, 0, only_lost=True,
            leaving=leaving,
        )  # fmt: skip
        return await self._do(view, question, await asyncio.to_thread(decide, view, question), asked | {"apply": True})

    async def _roll_back(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Everybody that a plan has moved back to where it came from."""
        self._refuse_if_busy()
        view = await self._fresh_view()
        numbers = await self._record.numbers()
        which = asked.get("plan")
        candidates = [which] if which is not None else list(reversed(numbers))
        for number in candidates:
            said = await self._record.decision(number)
            if said["plan"] and said["outcome"]:
                break
        else:
            raise BadInput("no plan has been carried out that could be taken back")
        states = said["outcome"]["states"]
        back = [
            Step(client, target, source)
            for (client, source, target), state in zip(said["plan"]["steps"], states, strict=True)
            if state == MOVED and source in set(view.brokers) and view.homes.get(client) == target
        ]
        if not back:
            raise BadInput(f"nobody that plan {number} has moved can go back: they have left, or their broker is away")
        clients = {name: row for row, name in enumerate(view.clients)}
        brokers = {name: row for row, name in enumerate(view.brokers)}
        then = view.home.copy()
        for step in back:
            then[clients[step.client]] = brokers[step.target]
        reasons = (f"plan {number} is taken back" + (f": {asked['reason']}" if asked.get("reason") else ""),)
        plan = Plan(
            0, time.time(), reasons, "roll back", tuple(back), Levels.of(view.load()), Levels.of(view.load(then))
        )
        return {"plan": (await self._by_hand(plan)).as_json(), "applied": True}

    async def _do(self, view: View, question: Question, made: Plan | NoPlan, asked: dict[str, Any]) -> dict[str, Any]:
        if isinstance(made, NoPlan):
            return {"plan": None, "why_not": made.why, "applied": False}
        if asked["apply"] and made.steps:
            self._loop.number = question.number
            await self._record.decided(view, question, made)
            await self._begin(made, by_hand=True)
        return {"plan": made.as_json(), "applied": bool(asked["apply"] and made.steps)}

    async def _stop(self, asked: dict[str, Any]) -> dict[str, Any]:
        if self._progress is None:
            raise BadInput("no plan is under way")
        progress = self._progress
        progress.drop(asked.get("reason") or "stopped by hand")
        await self._save()
        return {"plan": progress.plan.number, "moved": progress.count(MOVED), "moving": progress.count(MOVING)}
