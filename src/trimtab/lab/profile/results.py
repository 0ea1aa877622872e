"""What a plan of load tests shows: samples for latency models, the noise of the machine, the cost of messages."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.errors import BadInput
from trimtab.model.hardware import MEASURED, PLAIN, Hardware
from trimtab.predict.samples import Samples
from trimtab.predict.sets import Sets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trimtab.lab.profile.measure import Machine
    from trimtab.lab.profile.trial import Trial
    from trimtab.model.workload import Floats

LEAST_MESSAGES: Final = 20  # behind a percentile
OTHER_WORK: Final = 0.1  # cores in use by processes without a part in the test, above which the CPU use says nothing


def known(trial: Trial) -> list[bool]:
    """Of each topic, whether enough results arrived to know its p90."""
    return [
        count >= LEAST_MESSAGES and p90 is not None and 0.0 < p90 < np.inf
        for count, p90 in zip(trial.messages, trial.p90_ms, strict=True)
    ]


def usable(trial: Trial) -> bool:
    """Whether the p90 of every topic is known."""
    return all(known(trial))


def extra_ms(trials: Sequence[Trial]) -> float:
    """CPU time per message that brokers report beyond the time that a processor was told to burn."""
    extra = [
        real - told
        for trial in trials
        for real, told in zip(trial.cpu_ms, trial.colocation.processing_ms, strict=True)
        if real is not None
    ]
    return max(float(np.median(extra)), 0.0) if extra else PLAIN.service[0][1]


def sets_of(trials: Sequence[Trial], extra: float) -> Sets:
    """Processing times as brokers report them: what processors were told to burn, and ``extra``.

    Telemetry measures these times, so a model of them needs no knowledge of what a processor was told.
    """
    sizes = [len(trial.colocation.rate) for trial in trials]
    return Sets(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.concatenate([trial.colocation.rate for trial in trials]),
        np.concatenate([trial.colocation.processing_ms for trial in trials]) + extra,
        np.concatenate([trial.colocation.subscribers for trial in trials]),
    )


def samples_of(trials: Sequence[Trial], machine: Machine, **provenance: Any) -> Samples:
    """The usable runs as samples, with processing times as brokers report them."""
    used = [trial for trial in trials if usable(trial)]
    if not used:
        raise BadInput("no run has measured the p90 of all its topics: measure more, or longer (--seconds)")
    cpu = [_share(trial, machine) for trial in used]
    about = {
        "source": "measured", "processor": machine.processor, "runs": len(trials), "left_out": len(trials) - len(used),
    }  # fmt: skip
    p90, extra = np.concatenate([trial.p90_ms for trial in used]).astype(np.float64), extra_ms(used)
    about["told_to_measured_ms"] = extra
    sets, first = sets_of(used, extra), first_guess(used, machine)
    return Samples(first, sets, p90, np.array(cpu), float(used[0].seconds), about | provenance)


def _share(trial: Trial, machine: Machine) -> float:
    """Share of all cores in use; NaN if it is not known, or mostly that of other work."""
    if trial.machine_cores is None or (trial.foreign_cores or 0.0) > OTHER_WORK:
        return float("nan")
    return trial.machine_cores / machine.cores


def first_guess(trials: Sequence[Trial], machine: Machine) -> Hardware:
    """What can be read off without a model: the CPU time of messages at processors and elsewhere."""
    cost, extra = cost_of(trials), extra_ms(trials)
    return Hardware(
        machine.name, cores=machine.cores, service=((extra, extra), (1.0 + extra, 1.0 + extra)),
        processing=MEASURED, switching=PLAIN.switching, message_cv=PLAIN.message_cv, network_ms=PLAIN.network_ms,
        jitter_ms=PLAIN.jitter_ms,
        background=min(max(cost.other_cores, 0.0), 0.9 * machine.cores), overhead_ms=max(cost.other_ms, 0.0),
        fanout_ms=max(cost.copy_ms, 0.0) if np.isfinite(cost.copy_ms) else 0.0,
    )  # fmt: skip


def guess_of(machine: Machine) -> Hardware:
    """Where nothing but CPU times of telemetry is known, which are real ones."""
    return replace(PLAIN, name=machine.name, cores=machine.cores, service=((0.0, 0.0), (1.0, 1.0)),
                   processing=MEASURED)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU time outside the processors: so many cores, and so much per message. NaN where it was not measured."""

    other_cores: float  # of all processes, without a message
    other_ms: float
    broker_ms: float  # of the broker's server and agent, per message
    client_ms: float  # of the process that publishes and receives, per message
    processor_ms: float  # of a processor beyond the time that it was told to burn
    copy_ms: float  # of the broker's processes and the subscriber, for one more subscriber


UNKNOWN_COST: Final = Cost(*[float("nan")] * 6)


def cost_of(trials: Sequence[Trial]) -> Cost:
    """Straight lines of CPU use by messages/s, of the runs with one subscriber each; the others show what copies cost
    beyond that."""
    every, trials = trials, [trial for trial in trials if not trial.colocation.copies] or trials
    rate = np.array([sum(trial.colocation.rate) for trial in trials], np.float64)
    other, broker, client = (
        np.array([np.nan if value is None else value for value in values], np.float64)
        for values in (
            [trial.other_cores for trial in trials],
            [trial.broker_cores for trial in trials],
            [trial.client_cores for trial in trials],
        )
    )
    extra = [
        real - nominal
        for trial in trials
        for real, nominal in zip(trial.cpu_ms, trial.colocation.processing_ms, strict=True)
        if real is not None
    ]
    base, slope = _line(rate, other)
    return Cost(
        base, 1000.0 * slope, 1000.0 * _line(rate, broker)[1], 1000.0 * _line(rate, client)[1],
        float(np.median(extra)) if extra else float("nan"), _copy_ms(every, *_line(rate, broker + client)),
    )  # fmt: skip


def _copy_ms(trials: Sequence[Trial], base: float, slope: float) -> float:
    """CPU time of a copy at the broker's processes and the receiving one, which other work hardly changes: the median
    over runs with several subscribers, each counted by its number of copies. The line is that of the other runs."""
    measured = [
        (trial.colocation, trial.broker_cores + trial.client_cores)
        for trial in trials
        if trial.colocation.copies and trial.broker_cores is not None and trial.client_cores is not None
    ]
    if not measured:
        return float("nan")
    each = np.array([(cores - base - slope * sum(there.rate)) / there.copies for there, cores in measured])
    weight = np.array([there.copies for there, _ in measured], np.float64)
    order = np.argsort(each, kind="stable")
    middle = int(np.searchsorted(np.cumsum(weight[order]), 0.5 * weight.sum()))
    return 1000.0 * float(each[order[middle]])


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Offset and slope, by the Theil-Sen estimator: other work on the machine in single runs has no effect."""
    known = np.isfinite(y)
    x, y = x[known], y[known]
    first, second = np.triu_indices(len(x), 1)
    apart = x[first] != x[second]
    if not apart.any():
        return (float(np.median(y)) if len(y) else float("nan")), 0.0
    slope = float(np.median((y[second] - y[first])[apart] / (x[second] - x[first])[apart]))
    return float(np.median(y - slope * x)), slope


@dataclass(frozen=True, slots=True)
class Noise:
    """How far two runs of the same co-location lie apart: no prediction can be better than that.

    The logarithms of two runs differ by the errors of both. A perfect prediction has the error of one run, which is
    smaller by the square root of two.
    """

    topics: int  # pairs of measured p90s
    median: float  # error of a perfect prediction, as a share: median over topics
    of_nine: float  # nine of ten topics have at most this error

    def as_json(self) -> dict[str, float | None]:
        return {name: None if np.isnan(value) else value for name, value in asdict(self).items()}


UNKNOWN_NOISE: Final = Noise(0, float("nan"), float("nan"))


def noise_of(trials: Sequence[Trial]) -> Noise:
    first: dict[Any, Trial] = {}
    apart: list[float] = []
    for trial in trials:
        earlier = first.setdefault((trial.colocation, trial.seconds), trial)
        if earlier is not trial:
            both = zip(earlier.p90_ms, trial.p90_ms, known(earlier), known(trial), strict=True)
            apart += [abs(np.log(a / b)) for a, b, before, now in both if before and now and a and b]
    if not apart:
        return UNKNOWN_NOISE
    median, of_nine = np.quantile(np.array(apart) / np.sqrt(2.0), [0.5, 0.9])
    return Noise(len(apart), float(np.expm1(median)), float(np.expm1(of_nine)))
