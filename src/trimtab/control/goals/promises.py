"""Goal 3, promises: every topic inside its latency bound, by prediction before a step and by measurement after it.

The bound is about processing at the broker (Khare et al., SEC'18) and about the network (Gupta et al., SEC'21), which
add up. Processing takes the time of queueing behind the topic's own messages, on cores that are shared with the
broker's other topics; a key that moves away relieves them. The network takes longer when a topic's clients have moved;
then the topic follows them. Rates that grow count as they will be when a plan takes effect (``trends``), so a bound
that is about to be missed is found before it is. A measured miss that neither processing nor the network explains is
found, and nothing is moved for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

import numpy as np

from trimtab.control.goals.following import FAR, far_topics, followed, is_far
from trimtab.control.goals.goal import Change, Finding, Goal
from trimtab.control.hosting import Hosting, latency_model
from trimtab.control.resources import resources, too_full
from trimtab.model.placement import UNPLACED
from trimtab.observe.snapshot import USAGE_S

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from numpy.typing import NDArray

    from trimtab.control.hosting import Miss
    from trimtab.control.settings import Settings
    from trimtab.control.verdict import Verdict
    from trimtab.control.view import View
    from trimtab.fleet.protocol.plans import Plan, Question
    from trimtab.model.workload import Floats, Rows

PROMISE: Final = "promise"
LATENCY: Final = "latency"  # aim: less processing at a broker
NAMED: Final = 3  # topics named in a finding
CLOSE: Final = 1e-9


class Promises(Goal):
    name: ClassVar[str] = "promises"
    waits: ClassVar[bool] = False  # in a rush, rates have grown further before the outcome is measured

    def find(self, view: View, settings: Settings) -> Iterator[Finding]:
        yield from _unprocessed(view)
        hosting = Hosting.of(view, latency_model(settings.model), settings.headroom)
        if not hosting.promised:
            return
        yield from far_topics(hosting)
        # No relief of a broker helps a topic whose network latency alone is above its bound.
        missed = [miss for miss in hosting.missed(hosting.rate) if not is_far(hosting, miss)]
        if not missed:
            return
        worst, now = missed[0], {(miss.broker, miss.topic) for miss in hosting.missed(hosting.present)}
        missed.sort(key=lambda miss: (miss.broker, miss.topic) not in now)  # those that are missed now come first
        text = "; ".join(_sentence(hosting, miss, now) for miss in missed[:NAMED])
        more = f"; and {len(missed) - NAMED:,} more" if len(missed) > NAMED else ""
        mendable = any(_fits_alone(hosting, miss) for miss in missed)
        aim = LATENCY if mendable else ""
        yield Finding(PROMISE, text + more, aim=aim, broker=view.brokers[worst.broker])

    def propose(self, view: View, settled: Rows, question: Question) -> Iterator[Change | str]:
        """Move processors away from brokers that strain a bound, once all keys are served and this is firm."""
        aim = question.aims.get(self.name)
        if aim not in (FAR, LATENCY) or (view.current == UNPLACED).any():
            return
        placement, movers = _mended(_hosting(view, question), question)
        if len(movers):
            yield Change(placement, movers, aim)
        elif aim == FAR:
            yield "no nearer broker has room for a topic whose clients are too far from its broker"
        else:
            yield "no broker has enough idle time for a topic that misses its bound: add a broker"

    def accept(self, view: View, placement: Rows, question: Question) -> str:
        hosting = _hosting(view, question)
        if not hosting.promised:
            return ""
        now = {(miss.broker, miss.topic): miss.strain for miss in hosting.missed(hosting.rate)}
        for miss in hosting.missed(hosting.rates(placement)):
            if miss.strain > now.get((miss.broker, miss.topic), 1.0) * (1 + CLOSE):
                return f"then {_sentence(hosting, miss)}"
        return ""

    def mends(self, view: View, placement: Rows, question: Question) -> bool:
        """Whether no more topics miss their bound than with this goal's own proposal."""
        if question.aims.get(self.name) not in (FAR, LATENCY):
            return True
        hosting = _hosting(view, question)
        own = hosting.missed(hosting.rates(_mended(hosting, question)[0]))
        return len(hosting.missed(hosting.rates(placement))) <= len(own)

    def still_helps(self, view: View, plan: Plan, then: Rows, settings: Settings) -> bool:
        hosting = Hosting.of(view, latency_model(settings.model), settings.headroom)
        return len(hosting.missed(hosting.rates(then))) < len(hosting.missed(hosting.rate))

    def settles_s(self, settings: Settings) -> float:
        """Latencies are measured over the last seconds."""
        return max(USAGE_S, settings.period_s)

    def helped(self, verdict: Verdict, view: View, settings: Settings) -> bool:
        """Whether every topic that was moved is inside its bound, by a prediction that measurements correct."""
        hosting = Hosting.of(view, latency_model(settings.model), settings.headroom)
        moved = {step.topic for step in verdict.plan.steps}
        return not any(hosting.names[miss.topic] in moved for miss in hosting.missed(hosting.present))


def _unprocessed(view: View) -> Iterator[Finding]:
    """Measured misses of topics without a processor that the network does not explain: there is nothing to predict, and
    no move that would help."""
    topics, measured = view.snapshot.workload.topics, view.snapshot.p90_ms
    if topics.latency_ms is None or measured is None:
        return
    plain = np.ones(len(topics), bool) if topics.processing_ms is None else topics.processing_ms == 0.0
    known = dict(zip(view.network.topic.tolist(), view.network.at_home_ms.tolist(), strict=True))
    plain[[row for row, ms in known.items() if ms > topics.latency_ms[row]]] = False  # found as far from their clients
    late = np.flatnonzero(plain & (measured > topics.latency_ms))
    if len(late):
        late = late[np.argsort(-(measured / topics.latency_ms)[late], kind="stable")]
        text = "; ".join(
            f"topic '{topics.ids[int(row)]}' has a measured p90 of {measured[row]:,.0f} ms, above its bound of "
            f"{topics.latency_ms[row]:,.0f} ms; it has no processor"
            + (f", and takes {known[row]:,.0f} ms through the network" if row in known else "")
            + ", so no move is planned for it"
            for row in late[:NAMED].tolist()
        )
        yield Finding(PROMISE, text + (f"; and {len(late) - NAMED:,} more" if len(late) > NAMED else ""))


def _hosting(view: View, question: Question) -> Hosting:
    return Hosting.of(view, latency_model(question.model), question.headroom)


def _sentence(hosting: Hosting, miss: Miss, now: Collection[tuple[int, int]] | None = None) -> str:
    """What is expected of a topic, and what would help if moving cannot. ``now``: brokers and topics of the misses that
    are expected without any growth of rates."""
    name, bound = hosting.names[miss.topic], hosting.bound_ms[miss.topic]
    soon = now is not None and (miss.broker, miss.topic) not in now
    text = f"topic '{name}' is {'about' if soon else 'expected'} to miss its bound of {bound:,.0f} ms at "
    text += hosting.view.brokers[miss.broker]
    if soon:
        here, later = (float(rate[miss.broker].sum()) for rate in (hosting.present, hosting.rate))
        text += f", where traffic grows from {here:,.3g} to {later:,.3g} messages/s"
    network = hosting.network[miss.broker, miss.topic]
    if miss.latency_ms > bound:
        text += f" (p90 {miss.latency_ms:,.0f} ms" + (f", {network:,.0f} ms of it in the network)" if network else ")")
    else:
        text += " (its processor is nearly always busy)"
    if (least := hosting.idle_ms(miss.topic)) > bound:
        text += f"; even an empty broker takes {least:,.0f} ms: raise the bound, or speed up its processor"
    elif not _fits_alone(hosting, miss):
        text += "; a broker of its own would not be enough: split the topic, or speed up its processor"
    return text


def _fits_alone(hosting: Hosting, miss: Miss) -> bool:
    """Whether some broker could keep the bound if it processed no other topic."""
    brokers = range(len(hosting.rate))
    alone = np.zeros_like(hosting.rate)
    alone[:, miss.topic] = hosting.rate[miss.broker, miss.topic]
    return bool((hosting.strain(alone, brokers) <= 1.0).any())


def _mended(hosting: Hosting, question: Question) -> tuple[Rows, Rows]:
    """A placement in which topics are nearer to their clients and, if that is an aim, brokers are relieved."""
    nearer = followed(hosting, question)
    if question.aims.get(Promises.name) == FAR:
        return nearer
    return _best_relief(hosting, question, nearer)


def _best_relief(hosting: Hosting, question: Question, begin: tuple[Rows, Rows]) -> tuple[Rows, Rows]:
    """A relief for the rates to come; or one for the present rates, if that leaves fewer bounds missed now."""
    ahead = _relieved(hosting, question, begin)
    if (hosting.growth <= 1.0).all():
        return ahead
    now = hosting.at_present()
    left = len(now.missed(now.rates(ahead[0])))
    if not left:
        return ahead
    relief = _relieved(now, question, begin)
    return relief if len(now.missed(now.rates(relief[0]))) < left else ahead


def _relieved(hosting: Hosting, question: Question, begin: tuple[Rows, Rows]) -> tuple[Rows, Rows]:
    """The placement and the moved keys ``begin``, with more keys moved until there is less strain; keys in order.

    The broker with the highest strain gives first. It gives the lightest key without which none of its bounds is
    missed, or else the key whose leaving helps most. The key goes to the broker that is strained least with it, a
    broker in use if any keeps its bounds (goal thrift). O(moves x keys of a broker x brokers).
    """
    view = hosting.view
    placement, rate = begin[0].copy(), hosting.rates(begin[0])
    limits = resources(view, question.overload, question.messages)
    strain, everyone = hosting.strain(rate, range(len(rate))), np.arange(len(rate))
    frozen = set(question.frozen)
    moved: list[int] = begin[1].tolist()
    in_use = np.isin(everyone, placement)
    hopeless: set[int] = set()
    while len(moved) < question.most:
        over = [row for row in everyone[strain > 1.0].tolist() if row not in hopeless]
        if not over:
            break
        source = max(over, key=lambda row: strain[row])
        step = None
        for key in _leavers(hosting, rate, placement, source):
            if view.keys[key] in frozen or key in moved:
                continue
            step = _target(hosting, rate, source, key, in_use)
            if step is not None:
                trial = placement.copy()
                trial[key] = step
                if not too_full(view, limits, trial):
                    break
                step = None
        if step is None:
            hopeless.add(source)
            continue
        taken = hosting.taken(key)
        rate[source] = np.maximum(rate[source] - taken, 0.0)
        rate[step] += taken
        placement[key] = step
        in_use[step] = True
        moved.append(key)
        strain[[source, step]] = hosting.strain(rate[[source, step]], [source, step])
    return placement, np.array(moved, np.int32)


def _leavers(hosting: Hosting, rate: Floats, placement: Rows, source: int) -> list[int]:
    """Keys with processing at a broker, in the order in which they should leave it."""
    keys = np.unique(hosting.key)
    keys = keys[placement[keys] == source]
    if not len(keys):
        return []
    taken = np.stack([hosting.taken(int(key)) for key in keys])
    left = hosting.strain(np.maximum(rate[source] - taken, 0.0), [source] * len(keys))
    weight = taken @ hosting.processing_ms
    enough = left <= 1.0
    order = np.lexsort((np.where(enough, weight, left), ~enough))
    return [int(key) for key in keys[order]]


def _target(hosting: Hosting, rate: Floats, source: int, key: int, in_use: NDArray[np.bool_]) -> int | None:
    """The broker for a key that leaves ``source``: none of its bounds may be missed with the key."""
    brokers = [row for row in range(len(rate)) if row != source]
    if not brokers:
        return None
    then = hosting.strain(rate[brokers] + hosting.taken(key), brokers)
    able = [(not in_use[row], float(then[at]), row) for at, row in enumerate(brokers) if then[at] <= 1.0]
    return min(able)[2] if able else None
