"""Drift: measured latencies beside those that the fitted model predicts, broker by broker and topic by topic.

The alarm itself is ``predict.drift``. This file makes its windows of measurements. A window is as long as the span of
the measured percentiles, so that windows do not overlap. Two kinds of change are found: of a broker, when its topics
together leave their usual deviation from the prediction, and of a single processor. Predictions use present rates, but
the CPU time per message from when the alarm settled: a processor that needs more CPU time than before has changed, too.

After an alarm, the model learns from the windows since, if most brokers of a fleet have changed; a change at one broker
of several is other work on its machine, and the model stays. In both cases the alarm then settles on the new state.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.control.goals.goal import Finding
from trimtab.control.hosting import NOTHING, Hosting, latency_model
from trimtab.errors import BadInput
from trimtab.predict.drift import Drift, Settings, Window
from trimtab.predict.samples import Samples
from trimtab.predict.sets import Sets
from trimtab.predict.update import LEAST, updated

if TYPE_CHECKING:
    from trimtab.control.view import View

DRIFT: Final = "drift"
WINDOW_S: Final = 20.0  # the span of measured percentiles
LEAST_MESSAGES: Final = 20.0  # of a topic in a window; of fewer, the p90 is mostly chance
LEARN: Final = 6  # windows after an alarm that the model learns from; the alarm stays that long
NOTABLE: Final = 1.2  # change of a processor's CPU time that is mentioned
WHY: Final = "moving topics does not mend a drift; if it stays, measure the machine again: trimtab profile"


@dataclass(frozen=True, slots=True)
class Hosted:
    """One window of one broker."""

    topics: tuple[str, ...]
    rate: tuple[float, ...]
    processing_ms: tuple[float, ...]
    p90_ms: tuple[float, ...]  # NaN where it is not known
    subscribers: tuple[float, ...]


@dataclass(slots=True)
class Watch:
    """The alarms of one broker, for as long as it hosts the same topics."""

    topics: tuple[str, ...]
    alarm: Drift
    single: dict[str, Drift]  # of each topic alone
    first_ms: dict[str, list[float]]  # CPU time per message in the windows in which the alarms settled
    rung: int = 0  # windows since an alarm rang
    since: list[Hosted] = field(default_factory=list)  # windows since then

    @classmethod
    def of(cls, hosted: Hosted, settings: Settings) -> Watch:
        """With many topics, the alarm of each alone must be less sensitive for the same rate of false alarms."""
        alone = replace(settings, false_alarms=settings.false_alarms / max(len(hosted.topics), 1))
        single = {name: Drift(alone) for name in hosted.topics}
        return cls(hosted.topics, Drift(settings), single, {name: [] for name in hosted.topics})

    def usual_ms(self, topic: str, now: float) -> float:
        """The CPU time per message that the alarm settled on; the present one before that."""
        first = self.first_ms[topic]
        return float(np.median(first)) if len(first) >= self.alarm.settings.settle else now


@dataclass(slots=True)
class DriftWatch:
    """Call ``look`` with every measurement. Without a fitted model it does nothing."""

    model: dict[str, Any]  # JSON of the model, see ``hosting.latency_model``; empty: of an unknown machine
    headroom: float = 0.1
    settings: Settings = field(default_factory=Settings)
    findings: list[Finding] = field(default_factory=list)
    news: bool = False  # whether there is a finding that was not there at the last decision
    updates: int = 0  # of the model
    _watches: dict[str, Watch] = field(default_factory=dict)
    _at: float = -math.inf  # end of the last window

    def look(self, view: View) -> bool:
        """Take the window that ends with this measurement. Returns whether the model has been updated."""
        if not self.model or view.at < self._at + WINDOW_S:
            return False
        self._at = view.at
        model = latency_model(self.model)
        hosting = Hosting.of(view, model, self.headroom).at_present()
        windows = {view.brokers[row]: hosted_at(hosting, row) for row in range(len(view.brokers))}
        for row, (name, hosted) in enumerate(windows.items()):
            self._take(name, hosted, hosting, row)
        for name in self._watches.keys() - windows.keys():
            del self._watches[name]
        before = {finding.broker for finding in self.findings}
        self.findings = [found for name, watch in sorted(self._watches.items()) for found in _findings(name, watch)]
        self.news = self.news or any(found.broker not in before for found in self.findings if not found.slight)
        return self._learn(hosting)

    def resume(self, model: dict[str, Any]) -> bool:
        """Go on with the model of an earlier controller, if it has learned from the same fitted model."""
        if not model or not self.model or latency_model(model).hardware.name != latency_model(self.model).hardware.name:
            return False
        self.model = model
        self.updates += 1
        return True

    def _take(self, name: str, hosted: Hosted, hosting: Hosting, row: int) -> None:
        watch = self._watches.get(name)
        if not hosted.topics:
            self._watches.pop(name, None)
            return
        if watch is None or watch.topics != hosted.topics:
            watch = self._watches[name] = Watch.of(hosted, self.settings)
        usual = [watch.usual_ms(topic, ms) for topic, ms in zip(hosted.topics, hosted.processing_ms, strict=True)]
        sets = Sets(
            np.array([0, len(hosted.topics)]), np.array(hosted.rate), np.array(usual), np.array(hosted.subscribers)
        )  # fmt: skip
        model = hosting.models[hosting.kind[row]]
        window = Window(hosted.topics, np.array(hosted.p90_ms), model.p90_ms(sets), *model.interval_ms(sets))
        watch.alarm = watch.alarm.after(window)
        for at, topic in enumerate(hosted.topics):
            watch.single[topic] = watch.single[topic].after(_part(window, at))
            if len(watch.first_ms[topic]) < watch.alarm.settings.settle:
                watch.first_ms[topic].append(hosted.processing_ms[at])
        if watch.rung or watch.alarm.ringing or any(alarm.ringing for alarm in watch.single.values()):
            watch.rung += 1
            watch.since.append(hosted)

    def _learn(self, hosting: Hosting) -> bool:
        """Settle anew where alarms have rung for long enough, with a model that has learned from it if need be."""
        over = [name for name, watch in self._watches.items() if watch.rung > LEARN]
        if not over:
            return False
        changed = [name for name in over if self._watches[name].alarm.ringing]
        windows = [hosted for name in changed for hosted in self._watches[name].since]
        learned = 2 * len(changed) > len(self._watches) and self._update(windows, hosting)
        for name in over:
            del self._watches[name]
        if learned:
            text = f"the latency model has been updated by {len(windows)} windows of {', '.join(sorted(changed))}"
            self.findings.append(Finding(DRIFT, text, goal=DRIFT))
            self.news = True
        return learned

    def _update(self, windows: list[Hosted], hosting: Hosting) -> bool:
        usable = [hosted for hosted in windows if np.isfinite(hosted.p90_ms).all()]
        if len(usable) < LEAST:
            return False
        model = latency_model(self.model)
        sizes = [len(hosted.topics) for hosted in usable]
        sets = Sets(
            np.concatenate([[0], np.cumsum(sizes)]),
            np.concatenate([hosted.rate for hosted in usable]),
            np.concatenate([hosted.processing_ms for hosted in usable]),
            np.concatenate([hosted.subscribers for hosted in usable]),
        )
        p90 = np.concatenate([hosted.p90_ms for hosted in usable])
        nothing = np.full(len(usable), np.nan)
        samples = Samples(model.hardware, sets, p90, nothing, WINDOW_S, {"source": "telemetry"})
        try:
            self.model = updated(model, samples).as_json()
        except BadInput:  # for example, windows in which nothing can be learned
            return False
        self.updates += 1
        return True


def hosted_at(hosting: Hosting, row: int) -> Hosted:
    """The topics that a broker processes alone; of topics that several brokers process, no broker's p90 is known."""
    here = np.flatnonzero((hosting.rate[row] > NOTHING) & (hosting.processing_ms > 0.0))
    alone = (hosting.rate[:, here] > NOTHING).sum(axis=0) == 1
    p90 = hosting.measured_ms[here]
    enough = hosting.rate[row, here] * WINDOW_S >= LEAST_MESSAGES
    p90 = np.where(alone & enough & (p90 > 0.0), p90, np.nan)
    names = tuple(hosting.names[topic] for topic in here.tolist())
    rate, ms = hosting.rate[row, here], hosting.processing_ms[here]
    columns = (rate, ms, p90, hosting.subscribers[here])
    return Hosted(names, *(tuple(values.tolist()) for values in columns))


def _part(window: Window, at: int) -> Window:
    rows = slice(at, at + 1)
    return Window(
        window.topics[rows], window.measured_ms[rows], window.predicted_ms[rows], window.low_ms[rows],
        window.high_ms[rows],
    )  # fmt: skip


def _findings(broker: str, watch: Watch) -> list[Finding]:
    """Of the broker as a whole; else of single topics; else that the model does not fit."""
    ringing = {topic: alarm for topic, alarm in watch.single.items() if alarm.ringing}
    if watch.alarm.ringing and len(ringing) != 1:
        return [Finding(DRIFT, f"{broker}: {watch.alarm.reason}{_cause(watch, ringing or watch.single)}", goal=DRIFT,
                        broker=broker)]  # fmt: skip
    if ringing:
        texts = [f"latency of topic '{topic}' at {broker} is {alarm.factor:.2f} times what it was"
                 f"{_cause(watch, [topic])}" for topic, alarm in sorted(ringing.items())]  # fmt: skip
        return [Finding(DRIFT, "; ".join(texts), goal=DRIFT, broker=broker)]
    if watch.alarm.reason:
        return [Finding(DRIFT, f"{broker}: {watch.alarm.reason}", slight=True, goal=DRIFT, broker=broker)]
    return []


def _cause(watch: Watch, topics: Any) -> str:
    """What telemetry says about it: processors that need more or less CPU time than before."""
    if not watch.since:
        return ""
    last = dict(zip(watch.since[-1].topics, watch.since[-1].processing_ms, strict=True))
    changed = []
    for topic in topics:
        before, now = watch.usual_ms(topic, last[topic]), last[topic]
        if not before / NOTABLE <= now <= before * NOTABLE:
            changed.append(f"'{topic}' takes {now:.1f} ms of CPU time per message, before {before:.1f}")
    return f" ({'; '.join(changed[:3])})" if changed else " (with the same CPU time per message)"
