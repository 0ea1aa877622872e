"""Requests to the controller: status, pause and resume, plan now, stop a plan, roll back, empty a broker."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from trimtab.control import requests
from trimtab.control.decide import NoPlan, decide
from trimtab.errors import BadInput, NoLeader
from trimtab.fleet.protocol.admin_verbs import (
    ApplyMoves,
    ControllerStatus,
    EmptyBroker,
    GetStatus,
    Heard,
    Pause,
    Paused,
    PlanReply,
    Rebalance,
    ReportMissed,
    Resume,
    RollBack,
    Stopped,
    StopPlan,
)
from trimtab.fleet.protocol.plans import MOVED, MOVING, Step
from trimtab.model.key import Key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from trimtab.control.controller import Controller
    from trimtab.control.view import View
    from trimtab.fleet.operator.state import FleetState
    from trimtab.fleet.protocol.plans import Question
    from trimtab.fleet.protocol.request import Handler

    Q = TypeVar("Q")
    R = TypeVar("R")

LEAVE_S: Final = 900.0  # a broker that is not removed within this time is used again


class ControlService:
    """Answers requests while ``controller`` leads."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def handlers(self) -> list[Handler]:
        return [
            GetStatus.answered_by(self._status),
            ReportMissed.answered_by(self._missed),
            Pause.answered_by(self._in_turn(self._pause)),
            Resume.answered_by(self._in_turn(self._resume)),
            Rebalance.answered_by(self._in_turn(self._rebalance)),
            ApplyMoves.answered_by(self._in_turn(self._apply)),
            EmptyBroker.answered_by(self._in_turn(self._empty)),
            RollBack.answered_by(self._in_turn(self._roll_back)),
            StopPlan.answered_by(self._in_turn(self._stop)),
        ]

    def _in_turn(self, handle: Callable[[Q], Awaitable[R]]) -> Callable[[Q], Awaitable[R]]:
        """Requests that change something wait until the loop has no decision under way."""

        async def answer(request: Q) -> R:
            self._refuse_unless_leading()
            async with self._controller.deciding:
                self._controller.refuse_if_another_leads()
                return await handle(request)

        return answer

    def _refuse_unless_leading(self) -> None:
        if not self._controller.leads:
            raise NoLeader("this controller does not lead any more; ask again")

    async def _status(self, _: GetStatus) -> ControllerStatus:
        """Answered at once, also while the loop decides."""
        self._refuse_unless_leading()
        return self._controller.status()

    async def _missed(self, request: ReportMissed) -> Heard:
        self._refuse_unless_leading()
        return Heard(self._controller.heard(request.topics))

    async def _pause(self, request: Pause) -> Paused:
        self._controller.paused = request.reason or "by hand"
        await self._controller.save()
        return Paused(self._controller.paused)

    async def _resume(self, _: Resume) -> Paused:
        self._controller.paused = ""
        await self._controller.save()
        return Paused("")

    # Plans.

    async def _fresh_view(self) -> tuple[View, FleetState]:
        view, fleet = await self._controller.fleet_view.look(self._controller.runner.loop.leaving)
        if view is None:
            raise BadInput("there is no measurement of the fleet yet: is the pipeline running? (trimtab pipeline)")
        return view, fleet

    def _refuse_if_busy(self) -> None:
        if (progress := self._controller.runner.progress) is not None:
            done, all_ = progress.count(MOVED), len(progress.plan.steps)
            raise BadInput(f"plan {progress.plan.number} is under way, {done} of {all_} moved; stop it first")

    @property
    def _next_number(self) -> int:
        return self._controller.runner.loop.number + 1

    async def _rebalance(self, request: Rebalance) -> PlanReply:
        if request.apply:
            self._refuse_if_busy()
        view, fleet = await self._fresh_view()
        question = requests.rebalance(self._next_number, time.time(), view, self._controller.settings, request)
        question = msgspec.structs.replace(question, unfit=_cordoned(view, fleet))
        return await self._decide(view, question, apply=request.apply)

    async def _empty(self, request: EmptyBroker) -> PlanReply:
        self._refuse_if_busy()
        controller, name = self._controller, request.broker
        leaving = controller.runner.loop.leaving
        fleet = await controller.fleet_view.state()
        requests.refuse_to_empty(name, fleet.alive)
        leaving[name] = time.time() + LEAVE_S
        try:
            if name not in fleet.routing().brokers.values():
                await controller.save()
                return PlanReply(None, applied=False, why_not=f"no client, topic or link is placed at '{name}'")
            view, _ = await controller.fleet_view.look(leaving)
            if view is None:
                others = [broker for broker in fleet.open() if broker != name]
                reasons = requests.leaves(name, request.reason)
                plan = requests.by_number(time.time(), fleet.movable(), name.__eq__, others, reasons)
                if plan is None:
                    raise BadInput(f"no other broker takes the keys of '{name}': uncordon or add a broker first")
                return PlanReply(await controller.begin_by_hand(plan), applied=True)
            question = requests.empty(self._next_number, time.time(), controller.settings, name, request.reason)
            unfit = tuple(broker for broker in _cordoned(view, fleet) if broker != name)
            return await self._decide(view, msgspec.structs.replace(question, unfit=unfit), apply=True)
        except BaseException:
            leaving.pop(name, None)
            raise

    async def _decide(self, view: View, question: Question, *, apply: bool) -> PlanReply:
        controller = self._controller
        decision = await asyncio.to_thread(decide, view, question)
        controller.refuse_if_another_leads()
        if isinstance(decision, NoPlan):
            return PlanReply(None, applied=False, why_not=decision.why)
        applied = apply and bool(decision.steps)
        if applied:
            controller.runner.loop.number = question.number
            await controller.record.record_decision(view, question, decision)
            await controller.begin(decision, by_hand=True)
        return PlanReply(decision, applied=applied)

    async def _apply(self, request: ApplyMoves) -> PlanReply:
        """Apply a placement as one plan, with progress, stop and roll-back."""
        if request.apply:
            self._refuse_if_busy()
        view, fleet = await self._controller.fleet_view.look(self._controller.runner.loop.leaving)
        brokers = fleet.routing().brokers
        steps = []
        for order in request.moves:
            if order.key not in brokers:
                raise BadInput(f"this fleet has no {order.key}: the placement was made for another workload")
            if order.to not in fleet.alive:
                raise BadInput(f"broker '{order.to}' is not alive; alive: {', '.join(fleet.alive) or 'none'}")
            if brokers[order.key] != order.to:
                steps.append(Step.of(order.key, brokers[order.key], order.to))
        links = tuple(
            Step.of(key, brokers.get(key, ""), link.broker)
            for link in request.links
            for key in [Key("link", link.topic, link.client)]
        )
        reasons = requests.because("a placement is applied", request.reason)
        plan = requests.by_hand(time.time(), view, tuple(steps), reasons, "apply", links)
        if not request.apply or not (steps or links):
            return PlanReply(plan, applied=False)
        return PlanReply(await self._controller.begin_by_hand(plan), applied=True)

    async def _roll_back(self, request: RollBack) -> PlanReply:
        self._refuse_if_busy()
        (view, fleet), wanted, record = await self._fresh_view(), request.plan, self._controller.record
        brokers = fleet.routing().brokers
        for number in [wanted] if wanted is not None else reversed(await record.numbers()):
            decision = await record.decision(number)
            plan, outcome = decision.plan, decision.outcome
            if plan is not None and outcome is not None and (outcome.states or outcome.links):
                back = requests.back(time.time(), view, brokers, plan, outcome, request.reason)
                return PlanReply(await self._controller.begin_by_hand(back), applied=True)
        if wanted is not None:
            raise BadInput(f"decision {wanted} has moved nothing: there is nothing to take back")
        raise BadInput("no plan has been carried out that could be taken back")

    async def _stop(self, request: StopPlan) -> Stopped:
        runner = self._controller.runner
        progress, leaving = runner.progress, sorted(runner.loop.leaving)
        if progress is None and not leaving:
            raise BadInput("no plan is under way")
        if progress is not None:
            progress.drop(request.reason or "stopped by hand")
        runner.loop.leaving.clear()  # brokers that were to be removed stay
        await self._controller.save()
        moved, moving = (progress.count(name) if progress else 0 for name in (MOVED, MOVING))
        return Stopped(progress.plan.number if progress else None, leaving, moved, moving)


def _cordoned(view: View, fleet: FleetState) -> tuple[str, ...]:
    return tuple(sorted(set(fleet.cordoned) & set(view.brokers)))
