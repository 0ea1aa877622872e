"""The control loop of a live fleet: it leads or stands by, measures, decides, orders moves and reports its status."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from typing import TYPE_CHECKING, Final

import msgspec
import nats.errors

from trimtab.control import requests
from trimtab.control.decide import NoPlan, warm_up
from trimtab.control.fleet_view import FleetView
from trimtab.control.goals.evenness import policy_named
from trimtab.control.lease import RENEW_S, LeaderLease
from trimtab.control.memory import ControllerState
from trimtab.control.plan_orders import PlanOrders
from trimtab.control.plan_runner import PlanRunner
from trimtab.control.record import Record
from trimtab.control.service import ControlService
from trimtab.control.verdict import Verdict
from trimtab.errors import BadInput, Unreachable
from trimtab.fleet import tasks
from trimtab.fleet.protocol import wire
from trimtab.fleet.protocol.admin_verbs import ControllerStatus
from trimtab.fleet.protocol.plans import FAILED, MOVED, MOVING, WAITING, Levels, Outcome, Plan, Progress, Question
from trimtab.fleet.protocol.streams import CONTROL
from trimtab.model.key import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.aio.client import Client as Nats
    from nats.aio.subscription import Subscription

    from trimtab.control.settings import Settings
    from trimtab.control.view import View
    from trimtab.fleet.operator.state import FleetState
    from trimtab.observe.best_brokers import AtBrokers

log = logging.getLogger("trimtab.controller")
TICK_S: Final = 0.2  # interval at which moves, the lease and the list of live brokers are checked
SOON_S: Final = 0.3  # shortest time between two looks


class Controller:
    """Runs until it is cancelled. ``on_status`` is called with a sentence whenever the status changes."""

    def __init__(
        self, connection: Nats, settings: Settings, on_status: Callable[[str], None], *, paused: bool = False
    ) -> None:
        policy_named(settings.policy, set_to=settings.knobs)  # refuses an unknown policy or knob before the start
        self.name = f"controller-{secrets.token_hex(3)}"
        self.settings = settings
        self._connection = connection
        self._on_status = on_status
        self._last_status = ""
        self.runner = PlanRunner(settings)
        self._view: View | None = None
        self.fleet: FleetState | None = None  # at the last look
        self._looked_at = self._throttled_at = -1e9
        self._urgent = False  # a broker has reported missed bounds since the last look
        self.leads = False
        self.paused = ""  # the reason; empty while it is not paused
        self._begins_paused = paused
        self._status: ControllerStatus | None = None  # as it was when the present decision began
        self.deciding = asyncio.Lock()  # held by the loop or by a request while it decides
        self._subscriptions: list[Subscription] = []

    async def run(self) -> None:
        await asyncio.to_thread(warm_up, self.settings.policy)
        bucket = await self._connection.jetstream().key_value(CONTROL)
        self.record = Record(self._connection, bucket)
        self._orders = PlanOrders(self._connection, self.record)
        self.fleet_view = FleetView(self._connection, self.record)
        self._lease = LeaderLease(bucket, self.name)
        first = False
        with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
            first = await self._lease.try_to_hold()
        self._begins_paused = self._begins_paused and first  # a successor keeps the predecessor's pause instead
        renewing = asyncio.create_task(self._renew())
        try:
            while True:
                try:
                    async with self.deciding:
                        await self._turn()
                except (Unreachable, nats.errors.Error, TimeoutError, OSError) as error:
                    self._report(f"waiting for the hub: {error}")
                except BadInput as error:
                    self._report(f"nothing can be decided: {error}")
                await asyncio.sleep(TICK_S)
        finally:
            await tasks.end(renewing)  # a renewal after give_back would take the lease again
            with contextlib.suppress(Exception):
                await tasks.within(2.0, self._lease.give_back())

    async def _renew(self) -> None:
        while True:
            try:
                await tasks.within(RENEW_S * 2, self._lease.try_to_hold())
            except (nats.errors.Error, TimeoutError, OSError):
                pass  # the hub is away; the lease runs out by itself
            except Exception:  # renewals must go on, or no controller ever leads again
                log.exception("the lease could not be renewed")
            await asyncio.sleep(RENEW_S)

    def _report(self, sentence: str) -> None:
        if sentence != self._last_status:
            self._last_status = sentence
            self._on_status(sentence)

    async def _turn(self) -> None:
        if self._lease.held != self.leads:
            await self._unsubscribe()
            self.leads = False
            if self._lease.held:
                await self._take_over()
                self.leads = True  # a lease lost meanwhile is noticed in the next turn
        if not self.leads:
            self._report(
                "standing by: another controller leads" if self._connection.is_connected else "waiting for the hub"
            )
            return
        await self._advance_plans()
        since = time.monotonic() - self._looked_at
        due = since >= self.settings.period_s or (self._urgent and since >= SOON_S)
        if due or await self._broker_is_lost():
            self._urgent = False
            self._looked_at = time.monotonic()
            await self._look()

    async def _take_over(self) -> None:
        """Resume the previous leader's work: its unfinished plan, if that still helps, and its memory of moves."""
        state = await self.record.take_over(self.name)
        numbers = await self.record.numbers()
        progress = state.progress
        self.runner = PlanRunner(self.settings, max([*numbers, 0]), progress)
        self.runner.loop.remember(state.memory)
        await self.record.write_hosting(self.runner.loop.settings)
        if numbers:
            await self._close_last_decision(numbers[-1], progress)
        self.paused = state.paused or ("from the start" if self._begins_paused else "")
        self._begins_paused = False
        self._subscriptions += await wire.serve(self._connection, ControlService(self).handlers())
        self._report(f"{self.name} leads" + (", and goes on with a plan" if progress else ""))

    async def _unsubscribe(self) -> None:
        while self._subscriptions:
            await self._subscriptions.pop().unsubscribe()

    async def _close_last_decision(self, number: int, progress: Progress | None) -> None:
        """Write the outcome of the last decision if the previous leader died before it could.

        That leader died either before the plan began, or after the plan had ended and before its result was measured.
        """
        decision = await self.record.decision(number)
        plan, outcome = decision.plan, decision.outcome
        if plan is None or (progress is not None and progress.plan.number == number):
            return
        if outcome is None:
            dropped = Progress(plan, plan.at, ended=plan.at)
            died = "its controller died; the hub goes on with moves that had begun"
            dropped.drop(died if plan.aside else "its controller died before the plan began")
            await self.record.record_outcome(number, Outcome.of(dropped))
        elif outcome.helped is msgspec.UNSET:
            verdict = Verdict(plan, 0.0, unmeasured="its controller died before the measurement")
            await self.record.record_outcome(number, verdict.added_to(outcome))

    # Measuring and deciding.

    async def _broker_is_lost(self) -> bool:
        """Whether a broker of the last view is no longer alive: the next look is then due at once."""
        alive = set(await self.fleet_view.alive())
        lost = self._view is not None and not set(self._view.brokers) <= alive
        return lost and bool(alive)

    async def _look(self) -> None:
        view, self.fleet = await self.fleet_view.look(self.runner.loop.leaving)
        self._view = view
        if view is None:
            self.runner.loop.findings.clear()
            await self._rehome_without_measurement(self.fleet)
            self._report("waiting for a measurement of the fleet: is the pipeline running? (trimtab pipeline)")
            return
        # In a thread, because the lease must be renewed and the status be answered meanwhile.
        runner, model = self.runner, self.runner.loop.settings.model
        self._status = self.status()
        try:
            decision = await asyncio.to_thread(
                runner.look, time.time(), view, paused=bool(self.paused), cordoned=self.fleet.cordoned
            )
        finally:
            self._status = None
        self.refuse_if_another_leads()
        if runner.loop.settings.model is not model:  # it has learned from a drift
            await self.record.write_hosting(runner.loop.settings)
        await self._verify()
        if decision is not None and runner.loop.question is not None:
            await self.record.record_decision(runner.loop.view, runner.loop.question, decision)
        if isinstance(decision, Plan):
            await self.begin(decision)
        elif isinstance(decision, NoPlan):
            self._report(f"{'; '.join(decision.reasons)}. Nothing moves: {decision.why}")
        elif runner.progress is None:
            findings = "; ".join(str(finding) for finding in runner.loop.findings)
            self._report(f"{findings} ({runner.loop.why_not})" if findings else f"level: spread {view.load().cov:.2f}")
        await self.save()

    def heard(self, missed: Mapping[str, AtBrokers]) -> bool:
        """A broker reports missed bounds. Returns whether this controller decides about them."""
        known = self.fleet_view.missed
        for topic, report in missed.items():
            before = known.get(topic)
            known[topic] = msgspec.structs.replace(report, at=time.time())
            self._urgent |= before is None or msgspec.structs.replace(before, at=0.0) != report
        return self._view is not None

    async def _rehome_without_measurement(self, fleet: FleetState) -> None:
        """Re-home the keys of dead brokers, the same number of keys to each live broker: loads are unknown without a
        measurement."""
        alive = set(fleet.alive)
        plan = requests.by_number(time.time(), fleet.movable(), lambda broker: broker not in alive, fleet.open())
        progress = self.runner.progress
        pending = {step.key for step in [*progress.of(WAITING), *progress.of(MOVING)]} if progress else set()
        if plan is not None and not all(step.key in pending for step in plan.steps):
            await self.begin_by_hand(plan)

    async def begin_by_hand(self, plan: Plan) -> Plan:
        """Carry out a plan that was not decided from a measurement."""
        plan = msgspec.structs.replace(plan, number=self.runner.loop.number + 1)
        self.runner.loop.number = plan.number
        question = Question(plan.number, plan.at, plan.reasons, plan.policy, 0, 0.0, len(plan.steps))
        await self.record.record_decision(None, question, plan)
        await self.begin(plan, by_hand=True)
        return plan

    async def _verify(self) -> None:
        """Record the measured outcomes of ended plans."""
        verdicts = self.runner.loop.verdicts
        while verdicts:
            verdict = verdicts[0]
            number = verdict.plan.number
            await self.record.record_outcome(number, verdict.added_to(await self.record.outcome(number)))
            verdicts.pop(0)

    def refuse_if_another_leads(self) -> None:
        """To be called after any step that may have outlasted the lease."""
        if not self._lease.held:
            raise Unreachable(f"{self.name} does not lead any more; ask again")

    # Moving.

    async def begin(self, plan: Plan, *, by_hand: bool = False) -> None:
        replaced = self.runner.begin(time.time(), plan, by_hand=by_hand)
        if replaced is not None:
            self._report_end(replaced)
        self._throttled_at = time.monotonic()
        self._report(
            f"plan {plan.number}: {counted(step.key for step in plan.steps)} to move, because "
            f"{'; '.join(plan.reasons)}; spread "
            f"{plan.before.spread:.2f} -> {plan.predicted.spread:.2f}"
        )
        await self.save()

    async def _advance_plans(self) -> None:
        for beside in list(self.runner.beside):
            await self._advance_beside(beside)
        progress = self.runner.progress
        if progress is None:
            return
        await self._orders.follow(self.runner, progress)
        self.refuse_if_another_leads()
        if self._view is not None and time.monotonic() >= self._throttled_at + 1.0:
            self._throttled_at = time.monotonic()
            latencies = [usage.latency_ms for usage in self._view.usage.values()]
            self.runner.throttle.adjust(max(latencies, default=0.0), self._view.at)
        due = self.runner.due(paused=bool(self.paused))
        if due and self._lease.held:
            await self._orders.begin(self.runner, progress, due)
            await self.save()
        if (ended := self.runner.finished()) is not None:
            links = await self._orders.place_links(ended)
            ended.ended = time.time()
            await self._orders.record_end(ended, links)  # if the write fails, the next turn tries again
            self._report_end(ended)
            self.runner.end(time.time())
            await self.save()

    async def _advance_beside(self, progress: Progress) -> None:
        """Begin all moves of an urgent plan at once, and follow those that are under way."""
        if progress.count(WAITING):
            self.refuse_if_another_leads()
            await self._orders.begin(self.runner, progress, progress.rows(WAITING))
            if progress.count(WAITING):
                progress.drop("its keys are moved by another order")
        await self._orders.follow(self.runner, progress)
        if progress.over:
            if progress.plan.aside:
                progress.ended = time.time()
                self._report_end(progress)
            await self._orders.record_end(progress)
            self.runner.beside.remove(progress)

    def _report_end(self, progress: Progress) -> None:
        moved, failed = progress.count(MOVED), progress.count(FAILED)
        reason = f"; the rest was dropped: {progress.stopped}" if progress.stopped else ""
        self._report(f"plan {progress.plan.number}: {moved:,} moved, {failed:,} failed{reason}")

    async def save(self) -> None:
        status = msgspec.structs.asdict(self.status())
        await self.record.write_state(ControllerState(**status, memory=self.runner.loop.memory(time.time())))

    def status(self) -> ControllerStatus:
        """While a decision is made in its thread, the status from before: the loop is in use there."""
        if self._status is not None:
            return self._status
        view, loop, progress = self._view, self.runner.loop, self.runner.progress
        return ControllerStatus(
            leader=self.name, at=time.time(), says=self._last_status, policy=self.settings.policy, paused=self.paused,
            findings=[str(finding) for finding in loop.findings], why_not=loop.why_not,
            measured=view.at if view else None, load=Levels.of(view.load()) if view else None,
            brokers=dict(zip(view.brokers, view.load().per_broker.tolist(), strict=True)) if view else {},
            at_once=self.runner.throttle.at_once, progress=progress,
            left_s=progress.left_s(time.time()) if progress else None, leaving=sorted(loop.leaving),
            waiting=self.fleet.waiting() if self.fleet else {},
            cordoned=sorted(self.fleet.cordoned) if self.fleet else [],
        )  # fmt: skip
