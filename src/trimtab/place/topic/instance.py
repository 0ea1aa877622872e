"""The columns of a co-location problem, and its feasibility function."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.model.placement import UNPLACED, Placement
from trimtab.predict.model import Structured
from trimtab.predict.queueing import Queueing
from trimtab.predict.sets import Sets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from trimtab.model.hardware import Hardware
    from trimtab.model.placement import Bound
    from trimtab.model.problem import Problem
    from trimtab.model.workload import Floats, Rows
    from trimtab.predict.model import LatencyModel
    from trimtab.predict.sets import Ints

    Bools = NDArray[np.bool_]

NONE: Final = -1  # stands for no topic in a row of a matrix of sets


@dataclass(frozen=True, eq=False)
class Instance:
    """Topics with their bounds, brokers in kinds, and a latency model for each kind.

    Row t is topic t. A topic that is too much for every broker is left out of ``topics``.
    """

    rate: Floats  # (T,) messages/s
    processing_ms: Floats  # (T,) with the copies for all subscribers but the first one counted as processing
    bound_ms: Floats  # (T,) inf: no bound
    most: int  # k: topics on a broker
    models: tuple[LatencyModel, ...]  # of each kind of broker
    machines: tuple[Hardware, ...]  # of each kind of broker
    kind: Rows  # (B,) kind of each broker
    alone: Bools  # (T, kinds) whether an empty broker of the kind carries the topic

    @classmethod
    def of(cls, problem: Problem, most: int, model: LatencyModel | None) -> Instance:
        """``model`` predicts for all brokers; without one, the queueing model of the problem's hardware."""
        topics = problem.workload.topics
        processing = topics.need("processing_ms", "CPU time of a message; it decides which topics can share a broker")
        bounds = topics.need("latency_ms", "bound of the p90 latency; topics share brokers within their bounds")
        bounds = np.where(np.isnan(bounds), np.inf, bounds)
        chosen = Queueing(problem.hardware) if model is None else model
        if chosen.most < most:
            raise BadInput(f"the latency model '{chosen.name}' predicts for up to {chosen.most} topics on a broker, "
                           f"but k is {most}: set k={chosen.most}, or train a model with --k {most}")  # fmt: skip
        machines, kind = problem.machines_of(chosen.hardware)
        refuse_other_hardware(problem, chosen, machines)
        refuse_unreachable_bounds(problem, machines, processing, bounds)
        processing = chosen.hardware.for_one_subscriber(processing, problem.workload.copies)
        models = tuple(_on(chosen, machine) for machine in machines)
        alone = np.zeros((len(bounds), len(machines)), np.bool_)
        for each, machine in enumerate(machines):
            alone[:, each] = carries(machine, topics.rate, processing, bounds)
        return cls(topics.rate, processing, bounds, most, models, machines, kind, alone)

    @property
    def topics(self) -> Ints:
        """Topics that some broker can carry."""
        usable = np.unique(self.kind)
        return np.flatnonzero(self.alone[:, usable].any(axis=1))

    @cached_property
    def order(self) -> list[int]:
        """Brokers, the strongest first."""
        strength = np.array([capacity(machine, self.most) / speed_factor(machine) for machine in self.machines])
        return [int(broker) for broker in np.argsort(-strength[self.kind], kind="stable")]

    def sets(self, members: Ints, times: float = 1.0) -> Sets:
        """The sets in the rows of ``members``, with all rates multiplied."""
        return Sets.matrix(members, times * self.rate, self.processing_ms)

    def p90_alone(self, kind: int) -> Floats:
        """(T,) latency of each topic on an empty broker."""
        return self.models[kind].p90_ms(self.sets(np.arange(len(self.rate))[:, None]))

    def in_order_of_latency(self) -> Ints:
        """Topics in decreasing order of their latency on an empty broker of the strongest kind."""
        if not self.order:
            return self.topics
        latency = self.p90_alone(int(self.kind[self.order[0]]))
        return self.topics[np.argsort(-latency[self.topics], kind="stable")]

    def placement(self, groups: Iterable[tuple[int, Iterable[int]]], bound: Bound) -> Placement:
        broker = np.full(len(self.rate), UNPLACED, np.int32)
        for row, members in groups:
            broker[list(members)] = row
        return Placement("topic", broker, bound)


def _on(model: LatencyModel, machine: Hardware) -> LatencyModel:
    """The model for the hardware of a broker."""
    if machine == model.hardware:
        return model
    if not isinstance(model, Structured):
        raise BadInput(f"the latency model '{model.name}' knows hardware '{model.hardware.name}' only, but brokers "
                       "have other numbers of cores or speeds: use the models queueing or trim")  # fmt: skip
    other = model.on(machine)
    assert hasattr(other, "p90_ms")
    return other  # type: ignore[return-value]


def refuse_other_hardware(problem: Problem, model: LatencyModel, machines: tuple[Hardware, ...]) -> None:
    """Refuse a model of other hardware than the brokers'. Brokers with cores and speeds of their own are scaled kinds
    of the hardware. Fitted and true parameters of the same hardware may differ."""
    for ours, theirs in zip(machines, problem.machines[0], strict=True):
        if (ours.name, ours.cores) != (theirs.name, theirs.cores):
            both = [f"'{machine.name}' ({machine.cores:g} cores)" for machine in (ours, theirs)]
            raise BadInput(f"the latency model '{model.name}' is of hardware {both[0]}, but the brokers' hardware is "
                           f"{both[1]}: pose the problem with the model's hardware, or adapt the model with 20 to 50 "
                           "measured sets (trimtab train --samples ... --from ...)")  # fmt: skip


def carries(machine: Hardware, rate: Floats, processing_ms: Floats, bound_ms: Floats) -> Bools:
    """(T,) whether an empty broker keeps each topic's bound, or its queue finite without a bound.

    Property 1a of the paper assumes that every broker carries every topic. The prediction for one topic alone is that
    of the queueing model, whatever model predicts for several: it needs no samples.
    """
    rows = np.arange(len(rate))[:, None]
    queueing = Queueing(machine)
    sets = Sets.matrix(rows, rate, processing_ms)
    use, time = queueing.solve(sets)
    return np.asarray(np.where(bound_ms < np.inf, queueing.latency(use, time) <= bound_ms, use < 1.0))


def refuse_unreachable_bounds(
    problem: Problem, machines: tuple[Hardware, ...], processing_ms: Floats, bound_ms: Floats
) -> None:
    """Refuse bounds below the time that one message takes on an empty broker: splitting the topic cannot help."""
    if not machines or not len(bound_ms):
        return
    least = np.min([machine.network_ms + machine.service_ms(processing_ms) for machine in machines], axis=0)
    below = np.flatnonzero(bound_ms < least)
    if len(below):
        row = int(below[0])
        name = problem.workload.topics.ids[row]
        more = f" (and {len(below) - 1:,} more topics)" if len(below) > 1 else ""
        raise BadInput(f"topic '{name}'{more} has a bound of {bound_ms[row]:g} ms, but a single message takes "
                       f"{least[row]:.3g} ms on an empty broker: raise latency_ms to {least[row]:.3g} or more, or use "
                       "faster brokers")  # fmt: skip


def capacity(machine: Hardware, most: int) -> float:
    """The most cores' worth of work that up to ``most`` topics do at a time on this machine."""
    return float((np.arange(most + 1) * machine.speeds(most)).max())


def speed_factor(machine: Hardware) -> float:
    """CPU time of a message of 10 ms, as a measure of how slow a machine is."""
    return float(machine.service_ms(np.array([10.0]))[0])
