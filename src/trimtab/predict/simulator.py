"""One broker in virtual time: topics with publishers, a queue and a worker each, on cores that they share.

Every topic has a first-in-first-out queue and one worker, as in Khare et al. (SEC'18) and as the fleet's processors do.
Publishers send at intervals of their own, from a random phase on. Topics that are in processing share the cores as
``Hardware.speeds`` says, or take turns of ``quantum_ms``. Messages of the first seconds are not counted; messages that
wait at the end are processed and counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.compiled import compiled
from trimtab.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from trimtab.model.hardware import Hardware
    from trimtab.model.workload import Floats

    Ints = NDArray[np.int64]

DURATION_S: Final = 120.0
WARM_UP_S: Final = 5.0
QUANTILES: Final = (0.50, 0.90, 0.99)


@dataclass(frozen=True, slots=True, eq=False)
class Hosted:
    """The topics of one broker. Row i is topic i."""

    rate: Floats  # (K,) messages/s, all publishers together
    processing_ms: Floats  # (K,) nominal CPU time of a message
    publishers: Ints  # (K,)
    subscribers: Ints  # (K,)

    @classmethod
    def of(
        cls, rate: Floats, processing_ms: Floats, publishers: Ints | None = None, subscribers: Ints | None = None
    ) -> Hosted:  # fmt: skip
        """Publishers send one message a second each, unless their number is given; one subscriber is the default."""
        rate = np.asarray(rate, np.float64)
        processing = np.asarray(processing_ms, np.float64)
        if rate.ndim != 1 or rate.shape != processing.shape:
            raise BadInput(f"rate has shape {rate.shape}, processing_ms {processing.shape}; one number each per topic")
        for name, values in (("rate", rate), ("processing_ms", processing)):
            if not ((values >= 0.0) & (values < np.inf)).all():
                raise BadInput(f"{name} must be zero or more, and finite, but is {values.tolist()}")
        count = np.maximum(np.rint(rate), 1.0) if publishers is None else publishers
        ones = np.ones(len(rate)) if subscribers is None else subscribers
        return cls(rate, processing, np.asarray(count, np.int64), np.asarray(ones, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What one run of a broker showed, per topic. Latencies of a topic without messages are NaN."""

    messages: Ints  # (K,) counted
    quantiles_ms: Floats  # (K, 3) p50, p90 and p99 of latencies
    late: Ints  # (K,) counted messages above the topic's bound
    cpu: float  # share of all cores in use while publishers were sending

    @property
    def p90_ms(self) -> Floats:
        return self.quantiles_ms[:, 1]


def simulate(
    hardware: Hardware, hosted: Hosted, *, seed: int | tuple[int, ...], bound_ms: Floats | None = None,
    duration_s: float = DURATION_S, warm_up_s: float = WARM_UP_S,
) -> Run:  # fmt: skip
    """Percentiles of every topic's latency. The same seed gives the same run."""
    sent, begin, latency, cpu = _played(hardware, hosted, seed, duration_s)
    limits = np.full(len(hosted.rate), np.inf) if bound_ms is None else np.asarray(bound_ms, np.float64)
    messages, quantiles, late = _summary(sent, begin, latency, warm_up_s * 1000.0, limits, np.array(QUANTILES))
    return Run(messages, quantiles, late, cpu)


def repeated(
    hardware: Hardware, hosted: Hosted, *, seeds: Sequence[int | tuple[int, ...]], bound_ms: Floats | None = None,
    duration_s: float = DURATION_S, warm_up_s: float = WARM_UP_S,
) -> Run:  # fmt: skip
    """The messages of several runs together, one run for each seed."""
    topics = len(hosted.rate)
    limits = np.full(topics, np.inf) if bound_ms is None else np.asarray(bound_ms, np.float64)
    owner, latency, cpu = [], [], 0.0
    for seed in seeds:
        sent, begin, taken, share = _played(hardware, hosted, seed, duration_s)
        counted = sent >= warm_up_s * 1000.0
        owner.append(np.repeat(np.arange(topics), np.diff(begin))[counted])
        latency.append(taken[counted])
        cpu += share / len(seeds)
    of_topic = np.concatenate(owner)
    order = np.argsort(of_topic, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(of_topic, minlength=topics))])
    pooled = np.concatenate(latency)[order]
    messages, quantiles, late = _summary(pooled, ends, pooled, 0.0, limits, np.array(QUANTILES))
    return Run(messages, quantiles, late, cpu)


def latencies(
    hardware: Hardware, hosted: Hosted, *, seed: int | tuple[int, ...], duration_s: float = DURATION_S,
    warm_up_s: float = WARM_UP_S,
) -> list[Floats]:  # fmt: skip
    """Every counted message's latency in ms, per topic, in the order of publication."""
    sent, begin, latency, _ = _played(hardware, hosted, seed, duration_s)
    counted = sent >= warm_up_s * 1000.0
    rows = [slice(begin[topic], begin[topic + 1]) for topic in range(len(hosted.rate))]
    return [latency[row][counted[row]] for row in rows]


def _played(
    hardware: Hardware, hosted: Hosted, seed: int | tuple[int, ...], duration_s: float
) -> tuple[Floats, Ints, Floats, float]:
    """Times of all publications, sorted within each topic; where each topic begins; latencies; share of the cores."""
    topics = len(hosted.rate)
    if not 0.0 < duration_s < np.inf:
        raise BadInput(f"duration_s must be more than zero, and finite, but is {duration_s}")
    rng = np.random.default_rng(seed)
    duration = duration_s * 1000.0
    begin, sent = _publications(
        hosted.rate / 1000.0, hosted.publishers, duration, hardware.drift, hardware.poisson, rng
    )
    total = float(hosted.rate.sum())
    speed = hardware.speeds(topics, total) * max(1.0 + hardware.run_sd * rng.standard_normal(), 0.1)
    fanout: Floats = hardware.fanout_ms * hosted.subscribers.astype(np.float64)
    latency, busy = _process(
        sent, begin, hardware.service_ms(hosted.processing_ms), fanout, speed, hardware.message_cv,
        hardware.quantum_ms, float(hardware.cores), duration, rng,
    )  # fmt: skip
    _deliver(latency, begin, fanout, hardware.network_ms, hardware.jitter_ms, rng)
    used = busy / duration + float(hardware.elsewhere(total))
    return sent, begin, latency, min(used / hardware.cores, 1.0)


@compiled
def _publications(
    rate: Floats, publishers: Ints, duration: float, drift: float, poisson: bool, rng: np.random.Generator
) -> tuple[Ints, Floats]:  # fmt: skip
    """Times in ms; the intervals of a publisher follow a random walk around its mean interval."""
    topics = len(rate)
    begin = np.zeros(topics + 1, np.int64)
    room = 16
    for i in range(topics):
        room += int(rate[i] * duration * 1.25) + 8 * publishers[i] + 64
    sent = np.empty(room)
    count = 0
    for i in range(topics):
        first = count
        if rate[i] > 0.0:
            interval = publishers[i] / rate[i]
            for _ in range(publishers[i]):
                at = rng.random() * interval
                while at < duration:
                    if count == len(sent):
                        more = np.empty(2 * len(sent))
                        more[:count] = sent
                        sent = more
                    sent[count] = at
                    count += 1
                    if poisson:
                        at += rng.standard_exponential() * interval
                    else:
                        at += interval * max(1.0 + drift * rng.standard_normal(), 0.0)
        begin[i + 1] = count
        _sort(sent[first:count], duration)
    return begin, sent[:count]


@compiled
def _sort(values: Floats, most: float) -> None:
    """Sort numbers that are spread evenly over [0, most): by bucket, then by insertion. O(n)."""
    n = len(values)
    if n < 2:
        return
    place = np.zeros(n + 1, np.int64)
    for value in values:
        place[int(value / most * n) + 1] += 1
    for bucket in range(n):
        place[bucket + 1] += place[bucket]
    by_bucket = np.empty(n)
    for value in values:
        bucket = int(value / most * n)
        by_bucket[place[bucket]] = value
        place[bucket] += 1
    for row in range(n):
        value = by_bucket[row]
        at = row
        while at > 0 and values[at - 1] > value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value


@compiled
def _process(
    sent: Floats, begin: Ints, service: Floats, fanout: Floats, speed: Floats, cv: float, quantum: float, cores: float,
    duration: float, rng: np.random.Generator,
) -> tuple[Floats, float]:  # fmt: skip
    """Time from publication to the end of processing of every message, and core-milliseconds used until ``duration``.

    With a ``quantum``, as many topics run at a time as there are cores, rounded up. The others wait until a topic has
    no message left or its slice is over. Events in order of time: a publication, the end of a message, the end of a
    slice.
    """
    topics = len(service)
    slots = int(np.ceil(cores)) if quantum > 0.0 else topics
    latency = np.empty(len(sent))
    coming = begin[:topics].copy()  # next publication of each topic
    head = begin[:topics].copy()  # message at the head of each queue
    left = np.zeros(topics)  # CPU time that the head still takes
    slice_left = np.zeros(topics)
    ready = np.empty(max(topics, 1), np.int64)  # topics with messages; the first ``running`` run
    count, now, busy = 0, 0.0, 0.0
    sigma = np.sqrt(np.log1p(cv * cv))
    while True:
        running = min(count, slots)
        rate = speed[running]
        step, kind, which = 1e300, 0, -1
        for i in range(topics):
            if coming[i] < begin[i + 1] and sent[coming[i]] - now < step:
                step, kind, which = sent[coming[i]] - now, 1, i
        for place in range(running):
            i = ready[place]
            if left[i] / rate < step:
                step, kind, which = left[i] / rate, 2, place
            if quantum > 0.0 and count > running and slice_left[i] < step:
                step, kind, which = slice_left[i], 3, place
        if kind == 0:
            return latency, busy
        step = max(step, 0.0)
        if now < duration:
            busy += min(step, duration - now) * min(running, cores)
        now += step
        for place in range(running):
            left[ready[place]] -= step * rate
            slice_left[ready[place]] -= step
        if kind == 1:
            i = which
            if head[i] == coming[i]:  # the queue was empty
                left[i] = service[i] * np.exp(sigma * rng.standard_normal() - 0.5 * sigma * sigma) + fanout[i]
                slice_left[i] = quantum
                ready[count] = i
                count += 1
            coming[i] += 1
        else:
            i = ready[which]
            if kind == 2:
                latency[head[i]] = now - sent[head[i]]
                head[i] += 1
                if head[i] < coming[i]:
                    left[i] = service[i] * np.exp(sigma * rng.standard_normal() - 0.5 * sigma * sigma) + fanout[i]
                    continue  # the worker goes on with its next message, and keeps its slice
            for place in range(which, count - 1):
                ready[place] = ready[place + 1]
            count -= 1
            if kind == 3:
                ready[count] = i
                count += 1
            if quantum > 0.0 and count >= slots:
                slice_left[ready[slots - 1]] = quantum  # of the topic whose turn begins


@compiled
def _deliver(
    latency: Floats, begin: Ints, fanout: Floats, network: float, jitter: float, rng: np.random.Generator
) -> None:
    """Add the network; a subscriber drawn at random has its copy before the last one has."""
    for i in range(len(fanout)):
        for row in range(begin[i], begin[i + 1]):
            latency[row] += network + jitter * abs(rng.standard_normal()) - rng.random() * fanout[i]


@compiled
def _summary(
    sent: Floats, begin: Ints, latency: Floats, warm_up: float, bound: Floats, quantiles: Floats
) -> tuple[Ints, Floats, Ints]:
    topics = len(bound)
    messages, late = np.zeros(topics, np.int64), np.zeros(topics, np.int64)
    found = np.full((topics, len(quantiles)), np.nan)
    for i in range(topics):
        first = begin[i]
        while first < begin[i + 1] and sent[first] < warm_up:
            first += 1
        values = latency[first : begin[i + 1]]
        messages[i] = len(values)
        if not len(values):
            continue
        late[i] = (values > bound[i]).sum()
        ordered = np.sort(values)
        for q in range(len(quantiles)):
            place = quantiles[q] * (len(ordered) - 1)
            low = int(place)
            high = min(low + 1, len(ordered) - 1)
            found[i, q] = ordered[low] + (place - low) * (ordered[high] - ordered[low])
    return messages, found, late
