"""Model cards: what a model was made of, how good it is, and what it must not be used for (Mitchell et al., 2019)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from trimtab.predict.accuracy import BOUND_MS, Accuracy, coverage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trimtab.predict.model import LatencyModel
    from trimtab.predict.samples import Samples

COVERAGE: Final = 0.9
LEAST_TOPICS: Final = 10  # to say anything about sets of one size


@dataclass(frozen=True, slots=True)
class Evaluation:
    """How good a model is on samples that it was not fitted on: sets of one size, or all."""

    accuracy: Accuracy
    covered: float  # share of p90s within the 90 % interval
    above: float  # share of p90s above the interval: half of the rest, if the upper bound is calibrated

    @classmethod
    def of(cls, model: LatencyModel, samples: Samples, bound_ms: float = BOUND_MS) -> Evaluation:
        return cls.joined([model], [samples], bound_ms)

    @classmethod
    def joined(
        cls, models: Sequence[LatencyModel], parts: Sequence[Samples], bound_ms: float = BOUND_MS
    ) -> Evaluation:  # fmt: skip
        """Of models on a part of the samples each, as in a cross-validation."""
        pairs = []
        for model, part in zip(models, parts, strict=True):
            known = np.flatnonzero(part.sets.sizes <= model.most)
            if len(known):
                pairs.append((model, part.take(known)))
        measured = np.concatenate([part.p90_ms for _, part in pairs])
        predicted = np.concatenate([model.p90_ms(part.sets) for model, part in pairs])
        limits = [model.interval_ms(part.sets, COVERAGE) for model, part in pairs]
        low, high = (np.concatenate([each[side] for each in limits]) for side in (0, 1))
        return cls(
            Accuracy.of(measured, predicted, bound_ms), coverage(measured, low, high), float((measured > high).mean())
        )  # fmt: skip

    def as_json(self) -> dict[str, float]:
        values = self.accuracy.as_json() | {"covered": self.covered, "above": self.above}
        return {name: value for name, value in values.items() if np.isfinite(value)}


def evaluations(model: LatencyModel, samples: Samples, bound_ms: float = BOUND_MS) -> dict[int, Evaluation]:
    """By number of topics, of the sizes that the model predicts and of which there are enough."""
    parts = {size: samples.with_size(size) for size in range(1, model.most + 1)}
    return {
        size: Evaluation.of(model, part, bound_ms) for size, part in parts.items() if len(part.p90_ms) >= LEAST_TOPICS
    }


@dataclass(frozen=True, slots=True)
class Card:
    predictor: str
    hardware: str
    most: int  # topics on a broker
    data: Mapping[str, Any]  # number of sets and topics, source, provenance
    seed: int
    tested: str  # on which samples it was evaluated
    by_size: Mapping[int, Evaluation] = field(default_factory=dict)
    chosen: Evaluation | None = None  # on sets that an optimiser chose with this model
    bound_ms: float = BOUND_MS  # of which predictions can be on the wrong side

    @property
    def not_for(self) -> list[str]:
        """What the model must not be used for."""
        size = self.data.get("processing_ms", [0.0, 0.0])
        return [
            f"hardware other than '{self.hardware}': adapt it with 20 to 50 measured sets (trimtab train --from)",
            f"more than {self.most} topics on a broker",
            f"processing outside {size[0]:g} to {size[1]:g} ms of CPU time, or that waits for disks or peers",
            "delays of the network between clients and brokers, beyond the constant one it was measured with",
            f"promises for single messages: it predicts the 90th percentile of runs of {self.data.get('run_s', 0):g} s",
        ]

    def as_json(self) -> dict[str, Any]:
        return {
            "predictor": self.predictor, "hardware": self.hardware, "most": self.most, "data": dict(self.data),
            "seed": self.seed, "tested": self.tested, "bound_ms": self.bound_ms, "not_for": self.not_for,
            "by_topics": {str(size): each.as_json() for size, each in self.by_size.items()},
            "chosen_by_it": self.chosen.as_json() if self.chosen else None,
        }  # fmt: skip

    def markdown(self) -> str:
        lines = [
            f"# {self.predictor} for {self.hardware}",
            "",
            f"Predicts the p90 latency of up to {self.most} topics that share a broker, with calibrated intervals.",
            "",
            "## Data",
            "",
            *(f"- {name}: {_word(value)}" for name, value in self.data.items()),
            f"- seed: {self.seed}",
            "",
            f"## Errors by number of topics, on {self.tested}",
            "",
            f"| topics | R2 of log p90 | median error | nine of ten within | wrong side of {self.bound_ms:g} ms | "
            "in the 90 % interval | above it |",
            "|---|---:|---:|---:|---:|---:|---:|",
        ]
        rows: dict[Any, Evaluation] = dict(self.by_size)
        if self.chosen:
            rows["sets that an optimiser chose with it"] = self.chosen
        for size, each in rows.items():
            of = each.accuracy
            lines.append(
                f"| {size} | {of.r2:.4f} | {of.error:.1%} | {of.error_of_nine:.1%} | {of.wrong:.2%} | "
                f"{each.covered:.1%} | {each.above:.1%} |"
            )
        return "\n".join([*lines, "", "## Not for", "", *(f"- {line}" for line in self.not_for), ""])


def data_of(samples: Samples) -> dict[str, Any]:
    """The facts about samples that a card lists."""
    ms = samples.sets.processing_ms
    return {
        "sets": len(samples), "topics": len(ms), "run_s": samples.run_s,
        "processing_ms": [float(ms.min()), float(ms.max())], "provenance": samples.provenance,
    }  # fmt: skip


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_word(each)}" for name, each in value.items())
    return " to ".join(f"{each:g}" for each in value) if isinstance(value, list) else str(value)
