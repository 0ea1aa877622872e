"""The updates of ``serf`` and ``robust`` in compiled form, for simulations of whole networks.

They do the same arithmetic as the nodes in pure Python, which live processes use; a test compares the numbers. Each
event is one sample: node ``learner`` hears ``teacher``'s coordinate and a round-trip time. ``slot`` numbers the pairs
of a learner and a teacher; the slots of a learner follow each other in the order of its first samples.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.compiled import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from trimtab.model.workload import Floats

    Ints = NDArray[np.int64]
    Bits = NDArray[np.uint64]

HONEST, ELSEWHERE, SCALED, JUMPING, BESIDE = range(5)  # what a node reports as its coordinate
CLAIMED: Final = 0.001  # error that a liar claims, and its height in ms where it lies about the height
TINY_MS: Final = 1e-3
TINY: Final = 1e-6
BETA_1: Final = 0.9
BETA_2: Final = 0.9
FAST: Final = 0.05
SLOW: Final = 0.005
WORSE: Final = 1.5
MARGIN: Final = 0.03
WARM: Final = 300
LIMIT: Final = 4.0


@compiled
def _uniform(state: Bits, node: int) -> float:
    """SplitMix64, as ``draws.Draws`` has it."""
    state[node] += np.uint64(0x9E3779B97F4A7C15)
    mixed = state[node]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return float(mixed >> np.uint64(11)) * 2.0**-53 - 0.5


@compiled
def _direction(state: Bits, node: int, vector: Floats) -> None:
    square = 0.0
    for axis in range(len(vector)):
        vector[axis] = _uniform(state, node)
        square += vector[axis] * vector[axis]
    length = math.sqrt(square)
    for axis in range(len(vector)):
        if length < 1e-9:
            vector[axis] = 1.0 if axis == 0 else 0.0
        else:
            vector[axis] /= length


@compiled
def _distance(one: Floats, other: Floats) -> float:
    square = 0.0
    for axis in range(len(one)):
        square += (one[axis] - other[axis]) * (one[axis] - other[axis])
    return math.sqrt(square)


@compiled
def _reported(kind: int, event: int, mine: Floats, theirs: Floats, lie: Floats, heard: Floats) -> None:
    """What a teacher says its point is; a jumping liar alternates between two places."""
    for axis in range(len(heard)):
        if kind == HONEST:
            heard[axis] = theirs[axis]
        elif kind == ELSEWHERE:
            heard[axis] = lie[axis]
        elif kind == SCALED:
            heard[axis] = 3.0 * theirs[axis]
        elif kind == JUMPING:
            heard[axis] = lie[axis] if event % 2 == 0 else -lie[axis]
        else:
            heard[axis] = mine[axis]


@compiled
def _filtered(samples: Floats, count: int, rtt: float, ordered: Floats, low: bool) -> float:
    """Add a sample to a ring, and give the median of the ring, or its lower quartile."""
    window = len(samples)
    samples[count % window] = rtt
    kept = min(count + 1, window)
    for place in range(kept):
        at = place
        while at > 0 and ordered[at - 1] > samples[place]:
            ordered[at] = ordered[at - 1]
            at -= 1
        ordered[at] = samples[place]
    return float(ordered[(kept - 1) // 4 if low else kept // 2])


@compiled
def serf_run(
    learner: Ints, teacher: Ints, slot: Ints, rtt_ms: Floats, kind: Ints, lie: Floats,
    point: Floats, height: Floats, adjustment: Floats, error: Floats, state: Bits, measured: Floats,
    error_max: float, ce: float, cc: float, window: int, height_min: float, keep: int, rho: float,
) -> None:  # fmt: skip
    """Serf's updates, sample by sample; the state of the nodes is changed in place."""
    nodes, dimensions = point.shape
    samples, counts, ordered = np.zeros((len(measured), keep)), np.zeros(len(measured), np.int64), np.zeros(keep)
    residuals, at = np.zeros((nodes, max(window, 1))), np.zeros(nodes, np.int64)
    heard, along, origin = np.zeros(dimensions), np.zeros(dimensions), np.zeros(dimensions)
    for event in range(len(learner)):
        i, j, s = learner[event], teacher[event], slot[event]
        filtered = _filtered(samples[s], counts[s], rtt_ms[event], ordered, False)
        counts[s] += 1
        measured[s] = filtered
        rtt = max(filtered, TINY_MS)
        _reported(kind[j], event, point[i], point[j], lie[j], heard)
        high, theirs, extra = height[j], error[j], adjustment[j]
        if kind[j] != HONEST:
            high, theirs, extra = CLAIMED, CLAIMED, 0.0

        apart = _distance(point[i], heard)
        distance = apart + height[i] + high
        if distance + adjustment[i] + extra > 0.0:
            distance = distance + adjustment[i] + extra
        weight = error[i] / max(error[i] + theirs, TINY)
        wrong = abs(distance - rtt) / rtt
        error[i] = min(ce * weight * wrong + error[i] * (1.0 - ce * weight), error_max)
        force = cc * weight * (rtt - distance)
        if apart > TINY_MS:
            share = force / apart
            for axis in range(dimensions):
                point[i, axis] += (point[i, axis] - heard[axis]) * share
            height[i] = max(height[i] + share * (height[i] + high), height_min)
        else:
            _direction(state, i, along)
            for axis in range(dimensions):
                point[i, axis] += force * along[axis]

        if window > 0:
            residuals[i, at[i]] = rtt - (_distance(point[i], heard) + height[i] + high)
            at[i] = (at[i] + 1) % window
            total = 0.0
            for place in range(window):
                total += residuals[i, place]
            adjustment[i] = total / (2.0 * window)

        apart = _distance(point[i], origin)
        distance = apart + height[i] + height_min
        if distance + adjustment[i] > 0.0:
            distance += adjustment[i]
        force = -1000.0 * (distance / (1000.0 * rho)) ** 2
        if apart > TINY_MS:
            share = force / apart
            for axis in range(dimensions):
                point[i, axis] += point[i, axis] * share
            height[i] = max(height[i] + share * (height[i] + height_min), height_min)
        else:
            _direction(state, i, along)
            for axis in range(dimensions):
                point[i, axis] += force * along[axis]


@compiled
def robust_run(
    learner: Ints, teacher: Ints, slot: Ints, first: Ints, rtt_ms: Floats, kind: Ints, lie: Floats,
    point: Floats, height: Floats, error: Floats, state: Bits, measured: Floats,
    batch: int, width: float, plateau: float, trust: float, near: float, rate: float, floor: float, horizon: float,
    height_min: float, keep: int, rho: float,
) -> None:  # fmt: skip
    """The robust model's updates; ``first`` is the first slot of each node."""
    nodes, dimensions = point.shape
    samples, counts, ordered = np.zeros((len(measured), keep)), np.zeros(len(measured), np.int64), np.zeros(keep)
    peer_point = np.zeros((len(measured), dimensions))
    peer_height, peer_error = np.zeros(len(measured)), np.zeros(len(measured))
    known, cursor, total = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.zeros(nodes)
    steps, updates, slow = np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.ones(nodes)
    mean, square = np.zeros((nodes, dimensions + 1)), np.zeros((nodes, dimensions + 1))
    slope, along = np.zeros(dimensions + 1), np.zeros(dimensions)
    for event in range(len(learner)):
        i, j, s = learner[event], teacher[event], slot[event]
        if counts[s] == 0:
            known[i] += 1
        filtered = _filtered(samples[s], counts[s], rtt_ms[event], ordered, True)
        counts[s] += 1
        total[i] += filtered - measured[s]
        measured[s] = filtered
        _reported(kind[j], event, point[i], point[j], lie[j], peer_point[s])
        peer_height[s], peer_error[s] = height[j], error[j]
        if kind[j] != HONEST:
            peer_height[s], peer_error[s] = CLAIMED, CLAIMED

        scale = total[i] / known[i]
        count = min(batch, known[i])
        slope[:] = 0.0
        wrong = 0.0
        for place in range(count):
            p = first[i] + (cursor[i] + place) % known[i]
            apart = _distance(point[i], peer_point[p])
            estimate = max(apart + height[i] + peer_height[p], TINY_MS)
            rtt = max(measured[p], TINY_MS)
            ratio = math.log(estimate / rtt)
            wrong += min(abs(ratio), 1.0)
            z = ratio / width
            root = math.sqrt(1.0 + z * z)
            pull = z / (root * math.sqrt(root))
            if z > 1.0 and pull < plateau:
                pull = plateau
            doubt = min(max(peer_error[p], error[i]), 1.0)
            pull *= trust / (trust + doubt) / max(estimate, rtt / LIMIT, near * scale)
            slope[dimensions] += pull
            if apart > TINY_MS:
                pull /= apart
                for axis in range(dimensions):
                    slope[axis] += pull * (point[i, axis] - peer_point[p, axis])
            else:
                _direction(state, i, along)
                for axis in range(dimensions):
                    slope[axis] += pull * along[axis]
        cursor[i] = (cursor[i] + count) % known[i]
        wrong /= count
        error[i] += FAST * (wrong - error[i])
        slow[i] += SLOW * (wrong - slow[i])
        steps[i] += 1
        updates[i] += 1
        if steps[i] > WARM and error[i] > WORSE * slow[i] + MARGIN:
            steps[i] = 0
            slow[i] = error[i]

        length = scale * max(rate / (1.0 + steps[i] / horizon), floor)
        unbias_1, unbias_2 = 1.0 - BETA_1 ** updates[i], 1.0 - BETA_2 ** updates[i]
        for axis in range(dimensions + 1):
            gradient = slope[axis] * scale / count
            mean[i, axis] += (1.0 - BETA_1) * (gradient - mean[i, axis])
            square[i, axis] += (1.0 - BETA_2) * (gradient * gradient - square[i, axis])
            move = length * (mean[i, axis] / unbias_1) / (math.sqrt(square[i, axis] / unbias_2) + 1e-9)
            if axis < dimensions:
                point[i, axis] -= move
            else:
                height[i] = max(height[i] - move, height_min)
        far = 0.0
        for axis in range(dimensions):
            far += point[i, axis] * point[i, axis]
        shrink = 1.0 - math.sqrt(far) / (1000.0 * rho * rho)
        for axis in range(dimensions):
            point[i, axis] *= shrink
