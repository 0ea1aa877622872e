"""What is wrong, if anything. Each detector looks at one thing and says in a sentence what it found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np

from trimtab.control.resources import resources
from trimtab.model.placement import UNPLACED

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trimtab.control.settings import Settings
    from trimtab.control.view import View

SLIGHT: Final = 1.5  # times the spread that is allowed


class Kind(StrEnum):
    LOST = "lost"  # clients without a home that is alive
    OVERLOAD = "overload"
    IMBALANCE = "imbalance"
    IDLE = "idle"
    UNFINISHED = "unfinished"  # the budget did not allow all of the last plan


@dataclass(frozen=True, slots=True)
class Finding:
    kind: Kind
    text: str
    slight: bool = False  # so little above what is allowed that it may be noise
    resource: str = ""  # of which there is too little at a broker, and enough elsewhere
    broker: str = ""  # that has least of it

    def __str__(self) -> str:
        return self.text


def findings(view: View, settings: Settings) -> list[Finding]:
    return [
        found
        for detector in (lost, overload, imbalance, idle)
        for found in detector(view, settings)
    ]  # fmt: skip


def lost(view: View, _: Settings) -> Iterator[Finding]:
    """A broker is gone, and its clients have no home."""
    count = int(np.count_nonzero(view.home == UNPLACED))
    if count:
        yield Finding(Kind.LOST, f"{count:,} clients have no home: the broker they had is away")


def overload(view: View, settings: Settings) -> Iterator[Finding]:
    """A broker uses more than it should of anything whose limit is known (Gupta, SEC'21, 3.4.2)."""
    for resource in resources(view, settings.overload, settings.messages):
        share, allowed = resource.share(), resource.allowed
        over = np.flatnonzero(share > allowed).tolist()
        if not over:
            continue
        names = ", ".join(view.brokers[row] for row in over)
        text = f"{names} above {allowed:.0%} of {resource.name}: {share.max():.0%} at most"
        use, limit = float(resource.use.sum()), float(resource.limit.sum())
        together = use / max(limit, 1e-9)
        if together > allowed:
            more = math.ceil((use / allowed - limit) / max(float(resource.limit.mean()), 1e-9))
            text += f"; all brokers together are at {together:.0%}, so moving cannot mend it: add {more} like them"
            yield Finding(Kind.OVERLOAD, text)
        else:
            yield Finding(Kind.OVERLOAD, text, resource=resource.name, broker=view.brokers[int(np.argmax(share))])


def imbalance(view: View, settings: Settings) -> Iterator[Finding]:
    """The two thresholds of Algorithm 1 (Nguyen, DEBS'19): on the spread of loads, and on their mean."""
    load = view.load()
    if load.cov > settings.alpha and load.mean > settings.beta:
        fullest = view.brokers[int(np.argmax(load.levels))]
        text = f"loads are spread by {load.cov:.2f}, more than {settings.alpha:g}; {fullest} has the most"
        yield Finding(Kind.IMBALANCE, text, slight=load.cov < SLIGHT * settings.alpha)


def idle(view: View, settings: Settings) -> Iterator[Finding]:
    """A broker has next to nothing to do. One among fifty hardly shows in the spread, and is the one that was added."""
    load = view.load()
    able = view.problem.speed > 0.0
    mean = float(load.levels[able].mean()) if able.any() else 0.0
    rows = np.flatnonzero(able & (load.levels < settings.idle * mean)).tolist()
    if rows and mean > settings.beta:
        names = ", ".join(view.brokers[row] for row in rows)
        yield Finding(Kind.IDLE, f"{names} below {settings.idle:.0%} of the mean load")
